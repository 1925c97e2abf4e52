/* join.c: tensors joined along an axis, by letter or number; rolling and padding. */
#include "ops/ops.h"
#include <string.h>

/* Returns the part of y from `start` on, of size `size`, along an axis; not recorded. dim has room
 * for its sizes. */
static eg_tensor join_part(const eg_tensor *y, int axis, int64_t start, int64_t size, int64_t *dim)
{
    eg_tensor t = *y;
    memcpy(dim, y->dim, y->rank * sizeof *dim);
    dim[axis] = size;
    t.dim = dim;
    if (size) t.data += start * y->stride[axis] * eg__width[y->dtype];
    return t;
}

/* From this number of operands on, where each begins in the result is stored with the node: to add
 * the sizes before each operand takes time quadratic in their number. */
enum { CONCAT_MANY = 64 };

/* -- concat: y = x_1, x_2 … one after another along an axis,  dx_i = its slice of g ----------- */
static int concat_along(const eg_tensor *y)
{
    const int axis = *(const int *)y->attr;
    return axis < 0 ? axis + y->in[0]->rank : axis;
}
/* Sets the shape of a concatenation: that of the first operand, with the sizes along the axis
 * added. False after an error: dtypes, ranks or other sizes differ. */
static bool concat_shape(eg_tensor *y)
{
    const eg_tensor *first = y->in[0];
    int64_t dim[EG_RANK_MAX];
    char a[256], b[256];
    const int axis = eg__axis("concat", y->in[0], *(const int *)y->attr);
    if (axis < 0) return false;
    memcpy(dim, first->dim, first->rank * sizeof *dim);
    for (int k = 1; k < y->count; k++) {
        const eg_tensor *x = y->in[k];
        if (x->dtype != first->dtype) {
            eg_fail_as(y->cx, EG_ERROR_DTYPE, "concat: operand %d is %s, operand 1 is %s", k + 1,
                       eg_type_name(x->dtype), eg_type_name(first->dtype));
            return false;
        }
        bool fits = x->rank == first->rank;
        for (int r = 0; fits && r < x->rank; r++) fits = r == axis || x->dim[r] == first->dim[r];
        if (!fits) {
            eg_fail_as(y->cx, EG_ERROR_SHAPE,
                       "concat: operand %d is %s, operand 1 is %s; only axis %d may differ", k + 1,
                       eg__dims_text(x, a, sizeof a), eg__dims_text(first, b, sizeof b), axis);
            return false;
        }
        dim[axis] += x->dim[axis];
    }
    if (!eg__shape(y, first->dtype, first->rank, dim)) return false;
    if (y->count < CONCAT_MANY) return true;
    int64_t *start = eg__node_save(y, (size_t)y->count * sizeof *start);
    for (int k = 1; start && k < y->count; k++) start[k] = start[k - 1] + y->in[k - 1]->dim[axis];
    return start;
}
static bool concat_forward(eg_tensor *y)
{
    int64_t dim[EG_RANK_MAX], from = 0;
    const int axis = concat_along(y);
    for (int k = 0; k < y->count; from += y->in[k++]->dim[axis]) {
        eg_tensor part = join_part(y, axis, from, y->in[k]->dim[axis], dim);
        eg__copy(&part, y->in[k]);
    }
    return true;
}
static eg_tensor *concat_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const int axis = concat_along(y);
    const int64_t *start = eg_node_saved(y);
    int64_t from = start ? start[i] : 0;
    for (int k = 0; !start && k < i; k++) from += y->in[k]->dim[axis];
    return eg_slice_axis(g, axis, from, from + y->in[i]->dim[axis], 1);
}
static eg_tensor *concat_call(eg_tensor *const *x) { return eg_concat_axis(-1, x[0], x[1]); }
static eg_tensor *join_again_call(eg_tensor *const *x)
{
    return eg_concat_axis(0, x[0], x[1], x[0]);
}
static const eg_sample concat_samples[] = { { concat_call, "2x3, 2x4", 0, 0 },
                                            { join_again_call, "2x3, 1x3", 0, 0 },
                                            { concat_call, "2x3:i9, 2x1:i9", 0, 0 },
                                            { 0 } };
static const eg_op concat_op = {
    .name = "concat",
    .equation = "y = x1, x2, ... along an axis",
    .gradient = "the slice of g",
    .arity = -1,
    .shape = concat_shape,
    .forward = concat_forward,
    .rule = concat_rule,
    .uses = EG_USES_NOTHING,
    .samples = concat_samples,
    .jvp = eg_jvp_linear,
    .forward_c128 = concat_forward,
    .takes = EG_TAKES_ALL,
};
eg_tensor *eg_concat_axis_n(int axis, int count, eg_tensor *const *x)
{
    return eg_apply(&concat_op, &axis, sizeof axis, count, x);
}

/* True if the axes of f outside of the brackets have the sizes of the first tensor; else records an
 * error. */
static bool joined_alike(const eg_focus *first, const eg_focus *f, int k, const char *called)
{
    const eg_bound *b = f->bound;
    if (f->x->rank != first->x->rank)
        return eg__refuse_as(b, EG_ERROR_SHAPE, 0, -1, "under '...' %s has %d axes, operand 1 %d",
                             called, f->x->rank, first->x->rank),
               false;
    for (int i = 0; i < f->x->rank; i++) {
        const eg_axis_name *a = &b->axis[b->term[0].item[i].axis];
        if (i == f->item[f->outer] || f->x->dim[i] == first->x->dim[i]) continue;
        return eg__refuse_as(b, EG_ERROR_SHAPE, 0, i,
                             "index '%.*s' is %lld in operand 1 but %lld in operand %d; only the "
                             "bracketed one may differ",
                             a->length, a->text, (long long)first->x->dim[i],
                             (long long)f->x->dim[i], k + 1),
               false;
    }
    return true;
}

/* Returns the tensors joined along the brackets; poison after an error. Each tensor is bound
 * separately to the single term of the string. Messages call them "operand 2" followed by the text
 * `with`. */
static eg_tensor *joined(const char *who, const char *with, const char *spec, int count,
                         eg_tensor *const *x)
{
    eg_focus f, first = { .who = who };
    eg_ctx *cx = eg__context_of(who, count, x);
    if (!cx || !eg__check_taken(cx, who, EG_TAKES_ALL, count, x)) return eg__poison(cx);
    eg_tensor **each = eg__alloc(cx, (size_t)count * sizeof *each);
    for (int k = 0; each && k < count; k++) {
        char called[48];
        if (k && first.x == x[0] && eg__same_shape(x[k], x[0])) { /* fits as the first one did */
            each[k] = x[k];
            continue;
        }
        snprintf(called, sizeof called, "operand %d%s", k + 1, with);
        if (!eg__focus_in_place(&f, who, spec, x[k], (const char *[]){ called }) ||
            !eg__focus_one(&f) || (k && !joined_alike(&first, &f, k, called)))
            return eg__poison(cx);
        if (!k) first = f;
        each[k] = f.x;
    }
    if (!each) return eg__poison(cx);
    return eg__merge(&first.bound->term[0], eg_concat_axis_n(first.item[first.outer], count, each));
}
eg_tensor *eg_concat_n(const char *spec, int count, eg_tensor *const *x)
{
    return joined("concat", "", spec, count, x);
}

/* -- roll: the last elements before the first ones -------------------------------------------- */
/* Returns the elements of the axis, of which the last `shift` come first; of a negative shift the
 * first −shift come last. */
static eg_tensor *rolled(const eg_named_axis *a, int64_t shift)
{
    const int64_t n = a->x->dim[a->axis], by = n ? (shift % n + n) % n : 0;
    if (!by) return eg_copy(a->x);
    eg_tensor *part[] = { eg__slice(a, n - by, n, 1), eg__slice(a, 0, n - by, 1) };
    return eg_concat_axis_n(a->axis, 2, part);
}
eg_tensor *eg_roll_axis(eg_tensor *x, int axis, int64_t shift)
{
    eg_named_axis a;
    return eg__axis_numbered(&a, "roll", x, axis) ? rolled(&a, shift) : eg__poison_of(x);
}
eg_tensor *eg_roll(const char *spec, eg_tensor *x, int64_t shift)
{
    eg_focus f;
    eg_named_axis a;
    if (!eg__axis_lettered(&a, &f, "roll", spec, x)) return eg__poison_of(x);
    return eg__merge(&f.bound->term[0], rolled(&a, shift));
}

/* -- stack: concat along a new axis ----------------------------------------------------------- */
/* True if the operands have one dtype; else records an error, which concat would call by its own
 * name. */
static bool stack_one_dtype(eg_ctx *cx, int count, eg_tensor *const *x)
{
    for (int k = 1; k < count; k++)
        if (x[k]->dtype != x[0]->dtype)
            return eg_fail_as(cx, EG_ERROR_DTYPE, "stack: operand %d is %s, operand 1 is %s", k + 1,
                              eg_type_name(x[k]->dtype), eg_type_name(x[0]->dtype)),
                   false;
    return true;
}
eg_tensor *eg_stack_axis_n(int axis, int count, eg_tensor *const *x)
{
    char a[256], b[256];
    eg_ctx *cx = eg__context_of("stack", count, x);
    if (!cx) return NULL;
    for (int k = 0; k < count; k++) {
        if (!x[k]) return eg_fail_as(cx, EG_ERROR_MISUSE, "stack: operand %d is NULL", k + 1);
        if (eg__here(x[k]->cx) != cx)
            return eg_fail_as(cx, EG_ERROR_MISUSE, "stack: operand %d belongs to another context",
                              k + 1);
        if (!eg__check_usable("stack", x[k])) return eg__poison(cx);
        if (!eg__same_shape(x[k], x[0]))
            return eg_fail_as(cx, EG_ERROR_SHAPE, "stack: operand %d is %s, operand 1 is %s", k + 1,
                              eg__dims_text(x[k], a, sizeof a), eg__dims_text(x[0], b, sizeof b));
    }
    if (!stack_one_dtype(cx, count, x)) return eg__poison(cx);
    if (axis > x[0]->rank || axis < -x[0]->rank - 1)
        return eg_fail_as(cx, EG_ERROR_INDEX,
                          "stack: axis %d is out of range for a result of rank %d, from %s", axis,
                          x[0]->rank + 1, eg__dims_text(x[0], a, sizeof a));
    eg_tensor **each = eg__alloc(cx, (size_t)count * sizeof *each);
    if (!each) return eg__poison(cx);
    for (int k = 0; k < count; k++) each[k] = eg_unsqueeze(x[k], axis);
    return eg_concat_axis_n(axis, count, each);
}

/* Sets *place to the position of the bracketed index, which is the new axis, among the axes of the
 * result; if an ellipsis is before it, it is counted from the end and negative. False after an
 * error: the string has no such index, or tensors have different ranks. */
static bool stack_place(eg_ctx *cx, const char *spec, int count, eg_tensor *const *x, int *place)
{
    eg_parse_buffer buffer;
    const eg_parsed *p = eg__parse(cx, "stack", spec, EG_READ_BY_BLANKS, &buffer);
    if (!p) return false;
    const eg_parsed_term *t = &p->term[0];
    int slot = 0, bracketed = 0;
    bool dots = false, index = false;
    eg_caret mark = { t->at, t->stop - t->at };
    for (int k = t->begin; k < t->end; k++) {
        const eg_term_item *item = &p->item[k];
        if (item->bracket) {
            index = item->axis < p->axes && !item->group && p->axis[item->axis].size < 0;
            mark = (eg_caret){ item->at, index ? p->axis[item->axis].length : 1 };
            bracketed++;
            *place = dots ? slot - t->slots : slot;
        }
        if (!item->group || k + 1 == t->end || p->item[k + 1].group != item->group) slot++;
        dots |= item->axis == EG_ITEM_DOTS;
    }
    if (bracketed != 1 || !index)
        return eg__caret(
                   cx, "stack", spec, 1, &mark, NULL, NULL,
                   "the new axis is one index in brackets, without a size, as in \"b [n] d\""),
               false;
    for (int k = 0; k < count; k++) {
        const int rank = t->slots - 1 - (t->dots > 0);
        char dims[256];
        if (t->dots ? x[k]->rank >= rank : x[k]->rank == rank) continue;
        return eg__caret_as(
                   cx, EG_ERROR_SHAPE, "stack", spec, 1, &mark, NULL, NULL,
                   "operand %d has rank %d: %s, but the string names %s%d ax%s besides the new one",
                   k + 1, x[k]->rank, eg__dims_text(x[k], dims, sizeof dims),
                   t->dots ? "at least " : "", rank, rank == 1 ? "is" : "es"),
               false;
    }
    return true;
}
eg_tensor *eg_stack_n(const char *spec, int count, eg_tensor *const *x)
{
    int place = 0;
    eg_ctx *cx = eg__context_of("stack", count, x);
    if (!cx || !eg__check_taken(cx, "stack", EG_TAKES_ALL, count, x)) return eg__poison(cx);
    if (!stack_one_dtype(cx, count, x)) return eg__poison(cx);
    if (!spec) return eg_fail_as(cx, EG_ERROR_MISUSE, "stack: no string was given");
    const eg_plan_key key = { EG_KEY_STACK, count, strlen(spec), spec, x };
    const int *known = eg__plans_find(cx, &key);
    if (known)
        place = *known;
    else {
        if (!stack_place(cx, spec, count, x, &place)) return eg__poison(cx);
        int *kept = eg__plans_add(cx, &key, sizeof place);
        if (kept) *kept = place;
    }
    eg_tensor **each = eg__alloc(cx, (size_t)count * sizeof *each);
    for (int k = 0; each && k < count; k++) each[k] = eg_unsqueeze(x[k], place);
    return each ? joined("stack", " with its new axis", spec, count, each) : eg__poison(cx);
}

/* -- pad: y = value; y[…, before + i, …] = x[…, i, …],  dx = g without the padding ------------ */
typedef struct pad {
    int axis;
    int64_t before, after;
    double value;
} pad;
static bool pad_shape(eg_tensor *y)
{
    const pad *p = y->attr;
    const eg_tensor *x = y->in[0];
    int64_t dim[EG_RANK_MAX];
    memcpy(dim, x->dim, x->rank * sizeof *dim);
    int64_t *n = &dim[p->axis];
    if (__builtin_add_overflow(*n, p->before, n) || __builtin_add_overflow(*n, p->after, n)) {
        eg_fail_as(y->cx, EG_ERROR_SHAPE, "pad: axis %d would be longer than 2^63", p->axis);
        return false;
    }
    return eg__shape_ordered(y, x->dtype, x->rank, dim, x);
}
static bool pad_forward(eg_tensor *y)
{
    const pad *p = y->attr;
    int64_t dim[EG_RANK_MAX], n = y->in[0]->dim[p->axis];
    eg_tensor before = join_part(y, p->axis, 0, p->before, dim);
    eg__fill(&before, p->value);
    eg_tensor middle = join_part(y, p->axis, p->before, n, dim);
    eg__copy(&middle, y->in[0]);
    eg_tensor after = join_part(y, p->axis, p->before + n, p->after, dim);
    eg__fill(&after, p->value);
    return true;
}
static eg_tensor *pad_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const pad *p = y->attr;
    return eg_slice_axis(g, p->axis, p->before, p->before + y->in[i]->dim[p->axis], 1);
}
static eg_tensor *pad_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    const pad *p = y->attr;
    return eg_pad_axis(dx[0], p->axis, p->before, p->after, 0);
}
static eg_tensor *pad_call(eg_tensor *const *x) { return eg_pad_axis(x[0], 1, 2, 1, -1.5); }
static const eg_sample pad_samples[] = {
    { pad_call, "2x3", 0, 0 }, { pad_call, "2x3x2", 0, 0 }, { pad_call, "2x3:i9", 0, 0 }, { 0 }
};
static const eg_op pad_op = {
    .name = "pad",
    .equation = "y = value; y[before + i] = x[i]",
    .gradient = "g[before + i]",
    .arity = 1,
    .shape = pad_shape,
    .forward = pad_forward,
    .rule = pad_rule,
    .uses = EG_USES_NOTHING,
    .samples = pad_samples,
    .jvp = pad_jvp,
    .forward_c128 = pad_forward,
    .takes = EG_TAKES_ALL,
};
static eg_tensor *pad_along(const eg_named_axis *a, int64_t before, int64_t after, double value)
{
    const pad p = { a->axis, before, after, value };
    eg_tensor *x = a->x;
    char text[256];
    if (before < 0 || after < 0)
        return eg__refuse_axis(
            a, EG_ERROR_MISUSE, "the margins %lld and %lld of %s must not be negative",
            (long long)before, (long long)after, eg__axis_text(a, text, sizeof text));
    if (!eg__check_holds(x->cx, "pad", (eg_dtype)x->dtype, value)) return eg__poison(x->cx);
    return eg_apply(&pad_op, &p, sizeof p, 1, &x);
}
eg_tensor *eg_pad_axis(eg_tensor *x, int axis, int64_t before, int64_t after, double value)
{
    eg_named_axis a;
    return eg__axis_numbered(&a, "pad", x, axis) ? pad_along(&a, before, after, value)
                                                 : eg__poison_of(x);
}
eg_tensor *eg_pad(const char *spec, eg_tensor *x, int64_t before, int64_t after, double value)
{
    eg_focus f;
    eg_named_axis a;
    if (!eg__axis_lettered(&a, &f, "pad", spec, x)) return eg__poison_of(x);
    return eg__merge(&f.bound->term[0], pad_along(&a, before, after, value));
}

const eg_op *const eg__join_ops[] = { &concat_op, &pad_op, NULL };
