/* strings.c: the public einsum: reads a string for given tensors, checks the options, and calls
 * einsum.c with labels. What a string says for given sizes is kept in the plan memory. */
#include "einsum/einsum.h"
#include <string.h>

static size_t reading_bytes(const eg_bound *b)
{
    size_t items = (size_t)b->out.items;
    for (int k = 0; k < b->terms; k++) items += (size_t)b->term[k].items;
    return sizeof(eg_spec_labels) + (size_t)b->terms * sizeof(eg_term_labels) +
           (items + (size_t)b->out.rank) * sizeof(int64_t) + 2 * items * sizeof(uint16_t);
}
static eg_term_labels strings_part_of(const eg_bound *b, const eg_bound_term *t, int64_t **dim,
                                      uint16_t **label)
{
    const eg_term_labels p = { t->items, t->items != t->rank, *label, *label + t->items, *dim };
    eg_term_labels q = p;
    for (int r = 0; r < t->rank; r++) q.changed |= t->last[r] - t->first[r] != 1;
    for (int i = 0; i < t->items; i++) {
        const uint16_t number = t->item[i].axis;
        const eg_axis_name *a = &b->axis[number];
        (*label)[i] = number;
        (*label)[t->items + i] = b->axes > EG_LABEL_MAX - EG_LETTERS ? number
                                 : a->length == 1                    ? (uint16_t)a->text[0]
                                                  : (uint16_t)(EG_LETTERS + number);
        *(*dim)++ = a->size;
    }
    *label += 2 * t->items;
    return q;
}
static const eg_spec_labels *reading_in(void *room, const eg_bound *b)
{
    eg_spec_labels *r = room;
    int64_t *dim = (int64_t *)(void *)&r->operand[b->terms];
    size_t items = (size_t)b->out.items;
    for (int k = 0; k < b->terms; k++) items += (size_t)b->term[k].items;
    uint16_t *label = (uint16_t *)(dim + items + b->out.rank);
    for (int k = 0; k < b->terms; k++)
        r->operand[k] = strings_part_of(b, &b->term[k], &dim, &label);
    r->out = strings_part_of(b, &b->out, &dim, &label);
    r->rank = b->out.rank;
    r->dim = dim;
    if (r->rank) memcpy(dim, b->out.dim, (size_t)r->rank * sizeof *dim);
    return r;
}

/* From the plan memory, else read and bound; what eg__bind found is copied into the entry. */
const eg_spec_labels *eg__labels_of_spec(eg_ctx *cx, const char *spec, bool broadcast, int count,
                                         eg_tensor *const *operand, eg_tensor **x)
{
    const eg_plan_key key = { broadcast ? EG_KEY_READ_ONES : EG_KEY_READ, count, strlen(spec), spec,
                              operand };
    const eg_spec_labels *r = eg__plans_find(cx, &key);
    if (r) {
        for (int k = 0; k < count; k++) {
            const eg_term_labels *p = &r->operand[k];
            x[k] = p->changed ? eg_view_n(operand[k], p->items, p->dim) : operand[k];
        }
        return r;
    }
    const eg_bound *b =
        eg__bind_anew(cx, "einsum", spec, EG_NOTATION_IMPLICIT | (broadcast ? EG_NOTATION_ONES : 0),
                      count, operand, 0, NULL, NULL);
    if (!b) return NULL;
    for (int k = 0; k < count; k++) {
        x[k] = b->term[k].x;
        if (b->term[k].items > EG_RANK_MAX) {
            eg_fail_as(cx, EG_ERROR_SHAPE, "einsum: operand %d has %d axes; at most %d", k + 1,
                       b->term[k].items, EG_RANK_MAX);
            return NULL;
        }
    }
    if (b->out.items > EG_RANK_MAX) {
        eg_fail_as(cx, EG_ERROR_SHAPE, "einsum: the output has %d axes; at most %d", b->out.items,
                   EG_RANK_MAX);
        return NULL;
    }
    void *room = eg__plans_add(cx, &key, reading_bytes(b));
    if (!room) room = eg__alloc(cx, reading_bytes(b));
    return room ? reading_in(room, b) : NULL;
}

/* -- out= ------------------------------------------------------------------------------------- */
bool eg__out_fits(eg_ctx *cx, const eg_tensor *out, eg_dtype dtype, const eg_spec_labels *r)
{
    char a[256], b[256];
    if (out->dtype != dtype)
        eg_fail_as(cx, EG_ERROR_DTYPE, "einsum: .out is %s, the result %s",
                   eg_type_name(out->dtype), eg_type_name(dtype));
    else if (!eg__has_sizes(out, r->rank, r->dim))
        eg_fail_as(cx, EG_ERROR_SHAPE, "einsum: .out is %s, the result %s",
                   eg__dims_text(out, a, sizeof a), eg__sizes_text(r->rank, r->dim, b, sizeof b));
    return !eg__failed(cx);
}
/* Writes the einsum to .out. Where .out shares memory with an operand, the result is made aside
 * and then added or copied. */
static bool into(eg_ctx *cx, const eg_einsum_args *o, const eg_order_args *order,
                 const eg_spec_labels *r, eg_tensor *const *x, const uint16_t *const *label)
{
    eg_tensor *target = r->out.changed ? eg_view_n(o->out, r->out.items, r->out.dim) : o->out;
    bool shared = false;
    if (!eg_ok(target)) return false;
    for (int k = 0; k < o->count; k++) shared |= eg__overlap(target, x[k]);
    if (!shared)
        return eg__einsum_into(target, o->accumulate, order, o->count, x, label, r->out.label);
    /* planning the contraction below may evict r from the plan memory: copy what it says of out */
    uint16_t out[EG_RANK_MAX], counting[EG_RANK_MAX];
    const int rank = r->out.items;
    if (rank) memcpy(out, r->out.label, (size_t)rank * sizeof *out);
    for (int i = 0; i < rank; i++) counting[i] = (uint16_t)i;
    const eg_mark m = eg_push(cx);
    eg_tensor *y = eg__einsum_limited(order, o->count, x, label, rank, out);
    /* y may be a view of an operand */
    if (eg_ok(y) && eg__overlap(target, y)) y = eg_copy(y);
    const bool good =
        eg_ok(y) && eg__einsum_into(target, o->accumulate, &(eg_order_args){ .steps = -1 }, 1, &y,
                                    (const uint16_t *[]){ counting }, counting);
    eg_pop(cx, m);
    return good && !eg__failed(cx);
}

/* -- options ---------------------------------------------------------------------------------- */
bool eg__einsum_usable(eg_ctx *cx, const eg_einsum_args *o)
{
    if (!o->spec)
        eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: the spec is NULL");
    else if (o->count > EG_EINSUM_MAX)
        eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: %d operands; at most %d", o->count, EG_EINSUM_MAX);
    else
        return eg__check_all(cx, "einsum", o->count, o->operands);
    return false;
}
bool eg__einsum_dtypes(eg_ctx *cx, int count, eg_tensor *const *x)
{
    for (int k = 1; k < count; k++)
        if (x[k]->dtype != x[0]->dtype) {
            eg_fail_as(cx, EG_ERROR_DTYPE,
                       "einsum: operand 1 is %s but operand %d is %s; eg_cast one of them",
                       eg_type_name((eg_dtype)x[0]->dtype), k + 1,
                       eg_type_name((eg_dtype)x[k]->dtype));
            return false;
        }
    return true;
}
eg_order_args eg__order_of(const int (*path)[2], int steps, int64_t limit)
{
    return (eg_order_args){ .limit = limit, .steps = path || steps ? steps : -1, .path = path };
}

/* -- public ----------------------------------------------------------------------------------- */
eg_tensor *eg_einsum_with(const eg_einsum_args *given)
{
    /* a copy only for callers that were built with an older header */
    eg_einsum_args less = { .size = sizeof less };
    const bool all = given && given->size >= sizeof less;
    if (given && !all) memcpy(&less, given, given->size);
    const eg_einsum_args *const o = all ? given : &less;
    eg_ctx *cx = eg__context_of("einsum", o->count, o->operands);
    if (!cx) return NULL;
    if (!eg__einsum_usable(cx, o)) return eg__poison(cx);
    const bool plain = !o->out && !o->accumulate && !o->path && !o->steps && !o->limit;
    const eg_plan_key what = { o->broadcast ? EG_KEY_SPEC_ONES : EG_KEY_SPEC, o->count,
                               plain ? strlen(o->spec) : 0, o->spec, o->operands };
    eg_tensor *again = plain ? eg__einsum_lookup(cx, &what) : NULL;
    if (again) return again;
    if (!eg__einsum_dtypes(cx, o->count, o->operands)) return eg__poison(cx);
    if (o->accumulate && !o->out)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "einsum: .accumulate adds to .out, which is not given");
    if (o->out) {
        if (eg__recording(cx))
            return eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                              "einsum: what is written to .out has no history, and no gradient "
                              "would pass: eg_nograd(cx, true) "
                              "first, or leave .out away");
        if (eg__here(o->out->cx) != cx)
            return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: .out belongs to another context");
        if (!eg__target("einsum", o->out)) return eg__poison(cx);
    }
    eg_tensor *x[EG_EINSUM_MAX];
    const eg_spec_labels *r =
        eg__labels_of_spec(cx, o->spec, o->broadcast, o->count, o->operands, x);
    if (!r) return eg__poison(cx);
    const uint16_t *label[EG_EINSUM_MAX];
    bool same = plain && !r->out.changed;
    for (int k = 0; k < o->count; k++) {
        /* integers are summed in i64, and so are intermediates */
        if (o->count > 2 && x[k]->dtype != eg__einsum_type(x[k])) x[k] = eg_cast(x[k], EG_I64);
        same &= x[k] == o->operands[k];
        label[k] = o->out ? r->operand[k].label : r->operand[k].letter;
    }
    const eg_order_args order = eg__order_of(o->path, o->steps, o->limit);
    if (o->out) {
        if (!eg__check_all(cx, "einsum", o->count, x) ||
            !eg__out_fits(cx, o->out, eg__einsum_type(x[0]), r) ||
            !into(cx, o, &order, r, x, label))
            return eg__poison(cx);
        o->out->st->version++;
        return o->out;
    }
    int64_t dim[EG_RANK_MAX]; /* a copy: planning may evict r from the plan memory */
    const int rank = r->rank;
    const bool merge = r->out.changed;
    if (merge && rank) memcpy(dim, r->dim, (size_t)rank * sizeof *dim);
    eg_tensor *y = eg__einsum_keyed(same ? &what : NULL, &order, o->count, x, label, r->out.items,
                                    r->out.letter);
    return merge ? eg_reshape_n(y, rank, dim) : y;
}
eg_tensor *eg_einsum_n(const char *spec, int count, eg_tensor *const *operands)
{
    return eg_einsum_with(&(eg_einsum_args){
        .size = sizeof(eg_einsum_args), .spec = spec, .count = count, .operands = operands });
}
