/* affine.c: a product and the number that is added to it, in one node: what a linear layer and a
 * projection onto heads are. */
#include "einsum/einsum.h"
#include <string.h>

/* -- affine: y = einsum(x, W) + b, dx = einsum(g, W), dW = einsum(g, x), db = g summed over the
 * letters that b lacks */
/* The letters of x, then of W, then of y; b has y's last ones. */
typedef struct affine {
    int rank;
    uint16_t label[];
} affine;
static const uint16_t *affine_letters(const eg_tensor *y, int k)
{
    const affine *a = y->attr;
    const uint16_t *x = a->label, *w = x + y->in[0]->rank, *out = w + y->in[1]->rank;
    return k == 0 ? x : k == 1 ? w : k == 2 ? out + a->rank - y->in[2]->rank : out;
}
static const uint16_t *out_of(const eg_tensor *y) { return affine_letters(y, 3); }

static bool affine_fits(eg_ctx *cx, const eg_tensor *b, int rank, const int64_t *dim)
{
    char have[256], want[256];
    bool same = b->rank <= rank;
    for (int r = 1; same && r <= b->rank; r++) same = b->dim[b->rank - r] == dim[rank - r];
    if (same) return true;
    eg_fail_as(cx, EG_ERROR_SHAPE,
               "affine: operand 3 is %s, but the last axes of the result are those of %s",
               eg__dims_text(b, have, sizeof have), eg__sizes_text(rank, dim, want, sizeof want));
    return false;
}
static bool affine_shape(eg_tensor *y)
{
    const eg_call *c = eg__call_saved(y);
    const int rank = ((const affine *)y->attr)->rank;
    const uint16_t *const label[] = { affine_letters(y, 0), affine_letters(y, 1) };
    if (c) return eg__shape_known(y, eg__einsum_type(2, y->in), rank, c->dim, c->stride);
    return eg__einsum_shape(y, 2, label, rank, out_of(y));
}
enum { FEW = 1 << 13 };
/* y = b, repeated over y's first axes. Few numbers that are row-major are copied without planning a
 * loop. */
static void affine_spread(eg_tensor *y, const eg_tensor *b)
{
    int64_t size = 1, row = 1;
    bool plain = b->dtype == y->dtype;
    for (int r = 1; r <= y->rank; size *= y->dim[y->rank - r++]) {
        plain &= y->stride[y->rank - r] == size;
        if (r > b->rank) continue;
        plain &= b->stride[b->rank - r] == size;
        row *= b->dim[b->rank - r];
    }
    if (plain && size <= FEW) {
        const size_t bytes = (size_t)(row * eg__width[y->dtype]);
        for (int64_t k = 0; k < size; k += row)
            memcpy(y->data + k * eg__width[y->dtype], b->data, bytes);
        return;
    }
    int64_t step[EG_RANK_MAX] = { 0 };
    eg_tensor all = *b;
    if (b->rank) memcpy(step + y->rank - b->rank, b->stride, (size_t)b->rank * sizeof *step);
    all.rank = y->rank, all.dim = y->dim, all.stride = step;
    eg__copy(y, &all);
}
static bool affine_forward(eg_tensor *y)
{
    const eg_call *c = eg__call_saved(y);
    affine_spread(y, y->in[2]);
    if (c)
        return eg__program_run(y->cx, c->program,
                               (const void *[]){ y->in[0]->data, y->in[1]->data }, y->data, true);
    return eg__einsum_into(y, true, &eg__any_order, 2, y->in,
                           (const uint16_t *[]){ affine_letters(y, 0), affine_letters(y, 1) },
                           out_of(y));
}
/* The cotangents of x and W are those of the einsum, and remembered under the same keys. */
static eg_tensor *affine_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const affine *a = y->attr;
    const int n = i < 2 ? 2 : 1;
    eg_tensor *const in[] = { g, y->in[i ? 0 : 1] };
    const eg_plan_key w = { EG_KEY_COTANGENT + i + (i < 2 ? 0 : y->in[2]->rank), n,
                            y->attr_size - sizeof *a, a->label, in };
    if (!eg__check_taken(y->cx, "affine", EG_TAKES_HALVES, n, in)) return eg__poison(y->cx);
    eg_tensor *again = eg__einsum_lookup(y->cx, &w);
    if (again) return again;
    return eg__einsum_keyed(&w, &eg__any_order, n, in,
                            (const uint16_t *[]){ out_of(y), affine_letters(y, i ? 0 : 1) },
                            y->in[i]->rank, affine_letters(y, i));
}
static eg_tensor *affine_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    const uint16_t *const label[] = { affine_letters(y, 0), affine_letters(y, 1) };
    eg_tensor *sum = dx[2] ? eg_expand_n(dx[2], y->rank, y->dim) : NULL;
    for (int i = 0; i < 2; i++) {
        if (!dx[i]) continue;
        eg_tensor *const in[] = { i ? y->in[0] : dx[0], i ? dx[1] : y->in[1] },
                         *part = eg__einsum(2, in, label, y->rank, out_of(y));
        sum = sum ? eg__add(sum, part) : part;
    }
    return sum;
}
static void affine_cost(const eg_tensor *y, eg_op_cost *cost)
{
    eg__network_cost(y, 2, (const uint16_t *[]){ affine_letters(y, 0), affine_letters(y, 1) },
                     &(eg_labelled){ y->rank, y->dim, y->stride, out_of(y) }, cost);
}
static eg_tensor *affine_linear(eg_tensor *const *x)
{
    return eg_affine("bi,io->bo", x[0], x[1], x[2]);
}
static eg_tensor *heads(eg_tensor *const *x)
{
    return eg_affine("ibm,mhd->bihd", x[0], x[1], x[2]);
}
static const eg_sample affine_samples[] = { { affine_linear, "3x4, 4x2, 2", 0, 0 },
                                            { heads, "2x3x2, 2x2x2, 2x2", 0, 0 },
                                            { 0 } };
static const eg_op affine_op = {
    .name = "affine",
    .equation = "y = einsum(x, W) + b",
    .gradient = "dx = einsum(g, W), dW = einsum(g, x), db = sum of g",
    .arity = 3,
    .shape = affine_shape,
    .forward = affine_forward,
    .rule = affine_rule,
    .uses = EG_USES_OTHERS,
    .samples = affine_samples,
    .jvp = affine_jvp,
    .forward_c128 = affine_forward,
    .cost = affine_cost,
    .takes = EG_TAKES_HALVES,
};

/* True if the row can do it: floats, no groups, no letter that one operand alone has, none that the
 * output repeats. */
static bool affine_plain(const eg_spec_labels *r, eg_dtype dtype)
{
    const eg_term_labels *const part[] = { &r->operand[0], &r->operand[1], &r->out };
    uint8_t in[EG_LABEL_MAX] = { 0 };
    bool plain = eg__is_inexact(dtype);
    for (int k = 0; k < 3; k++) plain &= !part[k]->changed;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < part[k]->items; i++) {
            plain &= k < 2 || !(in[part[k]->letter[i]] & 4);
            in[part[k]->letter[i]] |= (uint8_t)(1 << k);
        }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < part[k]->items; i++) plain &= in[part[k]->letter[i]] != 1 << k;
    return plain;
}
static eg_tensor *affine_made(eg_ctx *cx, const eg_call *c, eg_tensor *const *x)
{
    return c ? eg__call_apply(cx, &affine_op, c, c->attr, c->attr_size, 3, x) : eg__poison(cx);
}
/* Planning may evict r from the plan memory, so its letters are copied first. */
static eg_tensor *affine_planned(eg_ctx *cx, const eg_plan_key *what, const eg_spec_labels *r,
                                 eg_tensor *const *x)
{
    union {
        affine a;
        char room[sizeof(affine) + 3 * EG_RANK_MAX * sizeof(uint16_t)];
    } u = { .a = { .rank = r->out.items } };
    const eg_term_labels *const part[] = { &r->operand[0], &r->operand[1], &r->out };
    const uint16_t *label[3];
    uint16_t *next = u.a.label;
    for (int k = 0; k < 3; next += part[k++]->items)
        if (part[k]->items)
            label[k] = memcpy(next, part[k]->letter, (size_t)part[k]->items * sizeof *next);
        else
            label[k] = next;
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    const size_t size = sizeof u.a + (size_t)(next - u.a.label) * sizeof *next;
    const bool countable = eg__einsum_layout(2, x, label, u.a.rank, label[2], dim, stride);
    if (!affine_fits(cx, x[2], u.a.rank, dim)) return eg__poison(cx);
    if (!countable) return eg__apply(cx, &affine_op, &u.a, size, NULL, 3, x); /* refuses */
    const eg_labelled to = { u.a.rank, dim, stride, label[2] };
    return affine_made(cx, eg__call_plan(cx, what, &u.a, size, 2, x, label, &to, &eg__any_order),
                       x);
}
/* Looks the call up, else reads the spec and plans it. What the row does not know becomes an
 * einsum and a sum. */
eg_tensor *eg_affine(const char *spec, eg_tensor *x, eg_tensor *W, eg_tensor *b)
{
    eg_tensor *given[] = { x, W, b }, *in[] = { NULL, NULL, b };
    if (!b) return eg_einsum(spec, x, W);
    eg_ctx *cx = eg__context_of("affine", 3, given);
    if (!cx || !eg__check_taken(cx, "affine", EG_TAKES_HALVES, 3, given)) return eg__poison(cx);
    if (!spec) return eg_fail_as(cx, EG_ERROR_MISUSE, "affine: the spec is NULL");
    const eg_plan_key what = { EG_KEY_AFFINE, 3, strlen(spec), spec, given };
    const eg_call *c = eg__plans_find(cx, &what);
    if (c) return affine_made(cx, c, given);
    const eg_dtype dtype = eg__einsum_reads(2, given); /* f16 and bf16 are read as it */
    const int first = x->dtype != dtype && W->dtype == dtype;
    for (int k = 0; k < 3; k++) {
        static const char *const name[] = { "x", "W", "b" };
        const bool half = eg__is_half(given[k]->dtype) && eg__is_float(dtype);
        if (given[k]->dtype != dtype && !half)
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "affine: %s is %s but %s is %s; eg_cast one of them", name[first],
                              eg_type_name(given[first]->dtype), name[k],
                              eg_type_name(given[k]->dtype));
    }
    const eg_spec_labels *r = eg__labels_of_spec(cx, spec, false, 2, given, in);
    if (!r) return eg__poison(cx);
    if (affine_plain(r, dtype)) return affine_planned(cx, &what, r, in);
    eg_tensor *y = eg_einsum(spec, x, W); /* two nodes; integers are summed in i64 */
    if (!eg_ok(y)) return y;
    if (y->dtype != b->dtype) b = eg_cast(b, (eg_dtype)y->dtype);
    return eg__add(y, eg_expand_n(b, y->rank, y->dim));
}

const eg_op *const eg__affine_rows[] = { &affine_op, NULL };
