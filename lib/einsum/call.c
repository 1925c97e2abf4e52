/* call.c: eg_einsum: reads a string for given tensors, checks the options, and calls
 * einsum.c with labels. What was read is stored in the cache of plans, by string and sizes. */
#include "einsum/einsum.h"
#include <math.h>
#include <string.h>

static size_t spec_labels_bytes(const eg_bound *b)
{
    size_t items = (size_t)b->out.items;
    for (int k = 0; k < b->terms; k++) items += (size_t)b->term[k].items;
    return sizeof(eg_spec_labels) + (size_t)b->terms * sizeof(eg_term_labels) +
           (items + (size_t)b->out.rank) * sizeof(int64_t) + 2 * items * sizeof(uint16_t);
}
/* Copies the labels and sizes of a bound term to *label and *dim, which are advanced. */
static eg_term_labels spec_labels_term(const eg_bound *b, const eg_bound_term *t, int64_t **dim,
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
/* Writes what eg__bind found to `memory`: the struct, then sizes, then labels. */
static const eg_spec_labels *spec_labels_written(void *memory, const eg_bound *b)
{
    eg_spec_labels *r = memory;
    int64_t *dim = (int64_t *)(void *)&r->operand[b->terms];
    size_t items = (size_t)b->out.items;
    for (int k = 0; k < b->terms; k++) items += (size_t)b->term[k].items;
    uint16_t *label = (uint16_t *)(dim + items + b->out.rank);
    for (int k = 0; k < b->terms; k++)
        r->operand[k] = spec_labels_term(b, &b->term[k], &dim, &label);
    r->out = spec_labels_term(b, &b->out, &dim, &label);
    r->rank = b->out.rank;
    r->dim = dim;
    if (r->rank) memcpy(dim, b->out.dim, (size_t)r->rank * sizeof *dim);
    return r;
}

/* An entry of the cache of plans or, if there is none, read and bound now; what eg__bind found is
 * copied into the entry. */
const eg_spec_labels *eg__labels_of_spec(eg_ctx *cx, const char *who, const char *spec,
                                         bool broadcast, int count, eg_tensor *const *operand,
                                         eg_tensor **x)
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
        eg__bind_anew(cx, who, spec, EG_NOTATION_IMPLICIT | (broadcast ? EG_NOTATION_ONES : 0),
                      count, operand, 0, NULL, NULL);
    if (!b) return NULL;
    for (int k = 0; k < count; k++) {
        x[k] = b->term[k].x;
        if (b->term[k].items > EG_RANK_MAX) {
            eg_fail_as(cx, EG_ERROR_SHAPE, "%s: operand %d has %d axes; at most %d", who, k + 1,
                       b->term[k].items, EG_RANK_MAX);
            return NULL;
        }
    }
    if (b->out.items > EG_RANK_MAX) {
        eg_fail_as(cx, EG_ERROR_SHAPE, "%s: the output has %d axes; at most %d", who, b->out.items,
                   EG_RANK_MAX);
        return NULL;
    }
    void *memory = eg__plans_add(cx, &key, spec_labels_bytes(b));
    if (!memory) memory = eg__alloc(cx, spec_labels_bytes(b));
    return memory ? spec_labels_written(memory, b) : NULL;
}

/* -- .out -------------------------------------------------------------------------------------- */
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
/* Writes the einsum to .out. If .out shares memory with an operand, the result is computed in other
 * memory first, then added or copied. False after an error. */
static bool einsum_into_out(eg_ctx *cx, const eg_einsum_args *o, const eg_order_args *order,
                            const eg_spec_labels *r, eg_tensor *const *x,
                            const uint16_t *const *label)
{
    const int count = o->count;
    eg_tensor *target = r->out.changed ? eg_view_n(o->out, r->out.items, r->out.dim) : o->out;
    const double alpha = eg_option(o->alpha, 1), beta = eg_option(o->beta, 0);
    bool shared = false;
    if (!eg_ok(target)) return false;
    for (int k = 0; k < count; k++) shared |= eg__overlap(target, x[k]);
    if (!shared) {
        if (beta != 0 && beta != 1 && !eg__scale_act(target, beta)) return false;
        return eg__einsum_into(target, alpha, beta != 0, order, count, x, label, r->out.label);
    }
    /* copied, since planning the contraction below may evict r from the cache */
    uint16_t out[EG_RANK_MAX], counting[EG_RANK_MAX];
    const int rank = r->out.items;
    if (rank) memcpy(out, r->out.label, (size_t)rank * sizeof *out);
    for (int i = 0; i < rank; i++) counting[i] = (uint16_t)i;
    const eg_mark m = eg_push(cx);
    eg_tensor *y = eg__einsum_keyed(NULL, order, alpha, count, x, label, rank, out);
    /* y may be a view of an operand */
    if (eg_ok(y) && eg__overlap(target, y)) y = eg_copy(y);
    const bool good = eg_ok(y) && (beta == 0 || beta == 1 || eg__scale_act(target, beta)) &&
                      eg__einsum_into(target, 1, beta != 0, &eg__any_order, 1, &y,
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
        return eg__check_taken(cx, "einsum", EG_TAKES_HALVES, o->count, o->operands);
    return false;
}
bool eg__einsum_dtypes(eg_ctx *cx, int count, eg_tensor *const *x)
{
    int first = 0; /* the operand whose dtype the others are compared with */
    while (first < count - 1 && eg__is_half(x[first]->dtype)) first++;
    for (int k = 0; k < count; k++) {
        const bool half = eg__is_half(x[k]->dtype) && eg__is_float(x[first]->dtype);
        if (x[k]->dtype == x[first]->dtype || half) continue;
        if (eg__is_half(x[first]->dtype) && eg__is_half(x[k]->dtype)) continue;
        const int low = k < first ? k : first, high = k < first ? first : k;
        eg_fail_as(cx, EG_ERROR_DTYPE,
                   "einsum: operand %d is %s but operand %d is %s; eg_cast one of them", low + 1,
                   eg_type_name((eg_dtype)x[low]->dtype), high + 1,
                   eg_type_name((eg_dtype)x[high]->dtype));
        return false;
    }
    return true;
}
eg_order_args eg__order_of(const int (*path)[2], int steps, int64_t limit, int64_t keep_limit)
{
    return (eg_order_args){
        .limit = limit, .keep_limit = keep_limit, .steps = path || steps ? steps : -1, .path = path
    };
}

/* -- alpha and beta --------------------------------------------------------------------------- */
/* True if a result of that type can have the factor: of integers an i64. */
static bool factor_is_of(double factor, eg_dtype dtype)
{
    return eg__is_inexact(dtype) || (factor == rint(factor) && fabs(factor) < 0x1p63);
}
bool eg__factor_fits(eg_ctx *cx, const char *name, double factor, eg_dtype dtype)
{
    if (factor_is_of(factor, dtype)) return true;
    eg_fail_as(cx, EG_ERROR_DTYPE, "einsum: .%s is %g, and the result %s", name, factor,
               eg_type_name(dtype));
    return false;
}

/* -- public ----------------------------------------------------------------------------------- */
/* True if .out, .alpha and .beta can be used; else records an error. */
static bool out_usable(eg_ctx *cx, const eg_einsum_args *o)
{
    const double beta = eg_option(o->beta, 0);
    const eg_dtype dtype = eg__einsum_type(o->count, o->operands);
    if (beta != 0 && !o->out && !o->add)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "einsum: .beta is the factor of .out or .add, and neither is given");
    else if (o->out && o->add)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "einsum: .out and .add are given, and .beta has one factor");
    else if (o->out && eg__recording(cx))
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "einsum: a result in .out has no gradients: "
                   "call eg_nograd(cx, true) first, use .add instead, or omit .out");
    else if (o->out && eg__here(o->out->cx) != cx)
        eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: .out belongs to another context");
    else if (eg__factor_fits(cx, "alpha", eg_option(o->alpha, 1), dtype))
        eg__factor_fits(cx, "beta", beta, dtype);
    bool copies = o->out && o->out->copies;
    for (int k = 0; o->out && k < o->count; k++) copies |= o->operands[k] && o->operands[k]->copies;
    if (copies && !cx->failed)
        eg_fail_as(
            cx, EG_ERROR_UNSUPPORTED,
            "einsum: .out is refused if operands have copies; omit it and eg_assign the result");
    return !cx->failed && (!o->out || eg__target("einsum", o->out));
}
/* -- add: y + beta c, where c broadcasts to y ------------------------------------------------- */
/* True if c can be added to a result of that type and shape; else records an error. */
static bool add_fits(eg_ctx *cx, eg_tensor *c, eg_dtype dtype, int rank, const int64_t *dim)
{
    char a[256], b[256];
    if (!eg__check_all(cx, "einsum: .add", 1, &c)) return false;
    bool fits = c->rank <= rank;
    for (int r = 1; fits && r <= c->rank; r++) {
        const int64_t n = c->dim[c->rank - r];
        fits = n == 1 || n == dim[rank - r];
    }
    if (c->dtype != dtype)
        eg_fail_as(cx, EG_ERROR_DTYPE, "einsum: .add is %s, the result %s",
                   eg_type_name((eg_dtype)c->dtype), eg_type_name(dtype));
    else if (!fits)
        eg_fail_as(cx, EG_ERROR_SHAPE, "einsum: .add is %s and does not broadcast to the result %s",
                   eg__dims_text(c, a, sizeof a), eg__sizes_text(rank, dim, b, sizeof b));
    return !eg__failed(cx);
}
/* Returns beta c, recorded: an einsum with that factor. */
static eg_tensor *add_scaled(eg_tensor *c, double beta)
{
    uint16_t label[EG_RANK_MAX];
    for (int r = 0; r < c->rank; r++) label[r] = (uint16_t)r;
    return eg__einsum_keyed(NULL, &eg__any_order, eg_option(beta, 1), 1, &c,
                            (const uint16_t *[]){ label }, c->rank, label);
}
/* Computes the einsum without .add, then the sum. Poison after an error. */
static eg_tensor *einsum_and_add(eg_ctx *cx, const eg_einsum_args *o)
{
    eg_einsum_args plain = *o;
    plain.add = NULL;
    plain.beta = 0;
    eg_tensor *x[EG_EINSUM_MAX];
    const eg_spec_labels *r =
        eg__labels_of_spec(cx, "einsum", o->spec, o->broadcast, o->count, o->operands, x);
    if (!r || !add_fits(cx, o->add, eg__einsum_type(o->count, o->operands), r->rank, r->dim))
        return eg__poison(cx);
    eg_tensor *y = eg_einsum_with(&plain);
    if (!eg_ok(y) || o->beta == EG_OFF) return y;
    eg_tensor *c = add_scaled(o->add, o->beta);
    return eg_ok(c) ? eg__add(y, eg_expand_n(c, y->rank, y->dim)) : c;
}
/* The key of a call without options other than alpha, which is not part of plans. */
static eg_plan_key key_of_spec(const char *spec, bool broadcast, int count, eg_tensor *const *x)
{
    const eg_key_kind kind = broadcast ? EG_KEY_SPEC_ONES : EG_KEY_SPEC;
    return (eg_plan_key){ kind, count, strlen(spec), spec, x };
}
/* A call with the key of an earlier one is applied at once. Otherwise options are checked, the
 * string is read, and the einsum is planned or written to .out. */
eg_tensor *eg_einsum_with(const eg_einsum_args *o)
{
    if (!o || o->size < sizeof *o) { /* built with an older header */
        eg_einsum_args all = { .size = sizeof all };
        if (o) memcpy(&all, o, o->size);
        all.size = sizeof all;
        return eg_einsum_with(&all);
    }
    eg_ctx *cx = eg__context_of("einsum", o->count, o->operands);
    if (!cx) return NULL;
    if (!eg__einsum_usable(cx, o)) return eg__poison(cx);
    const double alpha = eg_option(o->alpha, 1);
    const bool plain =
        !o->out && !o->add && o->beta == 0 && !o->path && !o->steps && !o->limit && !o->keep_limit;
    const eg_plan_key what = key_of_spec(o->spec, o->broadcast, o->count, o->operands);
    const eg_dtype dtype = eg__einsum_type(o->count, o->operands);
    /* a factor that is not of the dtype is refused below */
    eg_tensor *again =
        plain && factor_is_of(alpha, dtype) ? eg__einsum_lookup(cx, &what, alpha) : NULL;
    if (again) return again;
    if (!eg__einsum_dtypes(cx, o->count, o->operands) || !out_usable(cx, o)) return eg__poison(cx);
    if (o->add) return einsum_and_add(cx, o);
    eg_tensor *x[EG_EINSUM_MAX];
    const eg_spec_labels *r =
        eg__labels_of_spec(cx, "einsum", o->spec, o->broadcast, o->count, o->operands, x);
    if (!r) return eg__poison(cx);
    const uint16_t *label[EG_EINSUM_MAX] = { NULL };
    for (int k = 0; k < o->count; k++)
        label[k] = o->out ? r->operand[k].label : r->operand[k].letter;
    /* integers are summed in i64, and so are intermediates */
    for (int k = 0; k < o->count && o->count > 2 && dtype == EG_I64; k++)
        if (x[k]->dtype != EG_I64) x[k] = eg_cast(x[k], EG_I64);
    if (!eg__check_taken(cx, "einsum", EG_TAKES_HALVES, o->count, x)) return eg__poison(cx);
    bool same = plain && !r->out.changed;
    for (int k = 0; k < o->count; k++) same &= x[k] == o->operands[k];
    const eg_order_args order = eg__order_of(o->path, o->steps, o->limit, o->keep_limit);
    if (o->out) {
        if (!eg__out_fits(cx, o->out, dtype, r) || !einsum_into_out(cx, o, &order, r, x, label))
            return eg__poison(cx);
        o->out->st->version++;
        return o->out;
    }
    int64_t dim[EG_RANK_MAX]; /* copied, since planning may evict r from the cache */
    const int rank = r->rank;
    const bool merge = r->out.changed;
    if (merge && rank) memcpy(dim, r->dim, (size_t)rank * sizeof *dim);
    eg_tensor *y = eg__einsum_keyed(same ? &what : NULL, &order, alpha, o->count, x, label,
                                    r->out.items, r->out.letter);
    return merge ? eg_reshape_n(y, rank, dim) : y;
}
eg_tensor *eg_einsum_n(const char *spec, int count, eg_tensor *const *operands)
{
    eg_ctx *cx = eg__context_of("einsum", count, operands);
    if (!cx) return NULL;
    /* a call with the key of an earlier one, checked first because it is the usual case */
    if (spec && count <= EG_EINSUM_MAX) {
        const eg_plan_key what = key_of_spec(spec, false, count, operands);
        if (!eg__check_taken(cx, "einsum", EG_TAKES_HALVES, count, operands)) return eg__poison(cx);
        eg_tensor *again = eg__einsum_lookup(cx, &what, 1);
        if (again) return again;
    }
    return eg_einsum_with(&(eg_einsum_args){
        .size = sizeof(eg_einsum_args), .spec = spec, .count = count, .operands = operands });
}

/* -- labels given as integers ------------------------------------------------------------------ */
/* The indices of a call in the order of their first occurrence. */
typedef struct indices {
    int n;
    int number[EG_LABEL_MAX], times[EG_LABEL_MAX];
    int64_t size[EG_LABEL_MAX];
    int first[EG_LABEL_MAX]; /* the operand of its first occurrence */
} indices;
static int index_at(const indices *l, int number)
{
    for (int k = 0; k < l->n; k++)
        if (l->number[k] == number) return k;
    return -1;
}
/* Records that axis r of operand k, counted from 0, has this index. Returns the position of the
 * index in the list; −1 after an error. */
static int index_noted(eg_ctx *cx, indices *l, int number, int k, int64_t size)
{
    int at = index_at(l, number);
    if (number < 0)
        eg_fail_as(cx, EG_ERROR_NOTATION, "einsum: index %d of operand %d is negative", number,
                   k + 1);
    else if (at < 0 && l->n == EG_LABEL_MAX - EG_LETTERS)
        eg_fail_as(cx, EG_ERROR_NOTATION, "einsum: more than %d different indices", l->n);
    else if (at < 0) {
        at = l->n++;
        l->number[at] = number;
        l->times[at] = 0;
        l->size[at] = size;
        l->first[at] = k;
    } else if (l->size[at] != size)
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "einsum: index %d is %lld in operand %d but %lld in operand %d", number,
                   (long long)l->size[at], l->first[at] + 1, (long long)size, k + 1);
    if (at < 0 || cx->failed) return -1;
    l->times[at]++;
    return at;
}
/* Sets out[] to the positions of the result's indices. Returns their number; −1 after an error. */
static int index_out(eg_ctx *cx, const indices *l, int rank, const int *given, int *out)
{
    int n = 0;
    if (given && (rank < 0 || rank > EG_RANK_MAX)) {
        eg_fail_as(cx, EG_ERROR_SHAPE, "einsum: the output has %d axes; 0 to %d", rank,
                   EG_RANK_MAX);
        return -1;
    }
    for (int r = 0; given && r < rank; r++)
        if ((out[n++] = index_at(l, given[r])) < 0) {
            eg_fail_as(cx, EG_ERROR_NOTATION, "einsum: index %d of the output is in no operand",
                       given[r]);
            return -1;
        }
    for (int k = 0; !given && k < l->n; k++) {
        if (l->times[k] != 1) continue;
        if (n == EG_RANK_MAX) {
            eg_fail_as(cx, EG_ERROR_SHAPE, "einsum: the output has more than %d axes", n);
            return -1;
        }
        int at = n++;
        for (; at > 0 && l->number[out[at - 1]] > l->number[k]; at--) out[at] = out[at - 1];
        out[at] = k;
    }
    return n;
}
/* Maps the caller's integers to labels in the order of their first occurrence; sizes are compared
 * on the way. */
eg_tensor *eg_einsum_labels(int count, eg_tensor *const *xs, const int *const *labels, int rank,
                            const int *out_labels)
{
    eg_ctx *cx = eg__context_of("einsum", count, xs);
    if (!cx) return NULL;
    if (count > EG_EINSUM_MAX)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: %d operands; at most %d", count,
                          EG_EINSUM_MAX);
    if (!eg__check_taken(cx, "einsum", EG_TAKES_HALVES, count, xs) ||
        !eg__einsum_dtypes(cx, count, xs))
        return eg__poison(cx);
    const eg_dtype dtype = eg__einsum_type(count, xs);
    indices l;
    l.n = 0;
    int at[EG_RANK_MAX];
    uint16_t kept[EG_EINSUM_MAX + 1][EG_RANK_MAX];
    const uint16_t *label[EG_EINSUM_MAX];
    eg_tensor *x[EG_EINSUM_MAX];
    for (int k = 0; k < count; k++) {
        if (xs[k]->rank && (!labels || !labels[k]))
            return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: the indices of operand %d are NULL",
                              k + 1);
        for (int r = 0; r < xs[k]->rank; r++) {
            const int i = index_noted(cx, &l, labels[k][r], k, xs[k]->dim[r]);
            if (i < 0) return eg__poison(cx);
            kept[k][r] = (uint16_t)(EG_LETTERS + i);
        }
        label[k] = kept[k];
        x[k] = xs[k];
        if (count > 2 && dtype == EG_I64 && x[k]->dtype != dtype) x[k] = eg_cast(x[k], EG_I64);
    }
    const int n = index_out(cx, &l, rank, out_labels, at);
    if (n < 0) return eg__poison(cx);
    for (int r = 0; r < n; r++) kept[count][r] = (uint16_t)(EG_LETTERS + at[r]);
    return eg__einsum(count, x, label, n, kept[count]);
}
