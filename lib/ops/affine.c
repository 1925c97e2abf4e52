/* affine.c: a product and the number that is added to it, in one node: what a linear layer and a projection onto heads are. */
#include "einsum/program.h"
#include <string.h>

/* -- affine: y = einsum(x, W) + b, dx = einsum(g, W), dW = einsum(g, x), db = g summed over the letters that b lacks ------------- */
/* The letters of x, then of W, then of y; b has y's last ones. */
typedef struct affine { int rank; uint16_t label[]; } affine;
static const eg_order_args any_order = { .limit = 0, .steps = -1 };
static const uint16_t *letters(const eg_tensor *y, int k)
{
    const affine *a = y->attr;
    const uint16_t *x = a->label, *w = x + y->in[0]->rank, *out = w + y->in[1]->rank;
    return k == 0 ? x : k == 1 ? w : k == 2 ? out + a->rank - y->in[2]->rank : out;
}
static const uint16_t *out_of(const eg_tensor *y) { return letters(y, 3); }

static bool fits(const eg_tensor *y, int rank, const int64_t *dim)
{
    const eg_tensor *b = y->in[2];
    char have[256], want[256];
    bool same = b->rank <= rank;
    for (int r = 1; same && r <= b->rank; r++) same = b->dim[b->rank - r] == dim[rank - r];
    if (same) return true;
    const eg_tensor result = { .rank = (uint8_t)rank, .dim = (int64_t *)(uintptr_t)dim };
    eg_fail(y->cx, "affine: operand 3 is %s, but the last axes of the result are those of %s", eg__dims_text(b, have, sizeof have),
            eg__dims_text(&result, want, sizeof want));
    return false;
}
static bool affine_shape(eg_tensor *y)
{
    const int rank = ((const affine *)y->attr)->rank;
    const uint16_t *const label[] = { letters(y, 0), letters(y, 1) };
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    eg__einsum_layout(2, y->in, label, rank, out_of(y), dim, stride);
    if (!fits(y, rank, dim) || !eg__shape(y, (eg_dtype)y->in[0]->dtype, rank, dim)) return false;
    if (rank) memcpy(y->stride, stride, (size_t)rank * sizeof *stride);
    return true;
}
static bool affine_forward(eg_tensor *y)
{
    const eg_tensor *b = y->in[2];
    int64_t step[EG_RANK_MAX] = { 0 };
    eg_tensor spread = *b;                      /* b repeated over y's first axes */
    if (b->rank) memcpy(step + y->rank - b->rank, b->stride, (size_t)b->rank * sizeof *step);
    spread.rank = y->rank, spread.dim = y->dim, spread.stride = step;
    eg__copy(y, &spread);
    return eg__einsum_into(y, true, &any_order, 2, y->in, (const uint16_t *[]){ letters(y, 0), letters(y, 1) }, out_of(y));
}
static eg_tensor *affine_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *const in[] = { g, y->in[i ? 0 : 1] };
    return eg__einsum(i < 2 ? 2 : 1, in, (const uint16_t *[]){ out_of(y), letters(y, i ? 0 : 1) }, y->in[i]->rank, letters(y, i));
}
static eg_tensor *affine_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    const uint16_t *const label[] = { letters(y, 0), letters(y, 1) };
    eg_tensor *sum = dx[2] ? eg_expand_n(dx[2], y->rank, y->dim) : NULL;
    for (int i = 0; i < 2; i++) {
        if (!dx[i]) continue;
        eg_tensor *const in[] = { i ? y->in[0] : dx[0], i ? dx[1] : y->in[1] }, *part = eg__einsum(2, in, label, y->rank, out_of(y));
        sum = sum ? eg_add(sum, part) : part;
    }
    return sum;
}
static eg_tensor *linear(eg_tensor *const *x) { return eg_affine("bi,io->bo", x[0], x[1], x[2]); }
static eg_tensor *heads(eg_tensor *const *x) { return eg_affine("ibm,mhd->bihd", x[0], x[1], x[2]); }
static const eg_sample affine_samples[] = { { linear, "3x4, 4x2, 2", 0, 0 }, { heads, "2x3x2, 2x2x2, 2x2", 0, 0 }, { 0 } };
static const eg_op affine_op = {
    .name = "affine", .equation = "y = einsum(x, W) + b", .gradient = "dx = einsum(g, W), dW = einsum(g, x), db = sum of g",
    .arity = 3, .shape = affine_shape, .forward = affine_forward, .rule = affine_rule, .uses = EG_USES_OTHERS,
    .samples = affine_samples, .jvp = affine_jvp, .forward_c128 = affine_forward,
};

/* The row knows neither letters that one operand alone has, nor those that the output repeats, nor groups in it, nor integers. */
static bool plain(const eg_reading *r, const eg_tensor *x)
{
    const eg_reading_part *const part[] = { &r->operand[0], &r->operand[1], &r->out };
    uint8_t in[EG_LABEL_MAX] = { 0 };
    bool plain = eg__is_inexact(x->dtype) && !r->out.changed && r->out.items <= EG_RANK_MAX;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < part[k]->items; i++) {
            plain &= k < 2 || !(in[part[k]->letter[i]] & 4);
            in[part[k]->letter[i]] |= (uint8_t)(1 << k);
        }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < part[k]->items; i++) plain &= in[part[k]->letter[i]] != 1 << k;
    return plain;
}
eg_tensor *eg_affine(const char *spec, eg_tensor *x, eg_tensor *W, eg_tensor *b)
{
    eg_tensor *given[] = { x, W, b }, *in[3] = { NULL, NULL, b };
    if (!b) return eg_einsum(spec, x, W);
    eg_ctx *cx = eg__context_of(3, given);
    if (!cx || !eg__check_all(cx, "affine", 3, given)) return eg__poison(cx);
    if (!spec) return eg_fail(cx, "affine: the spec is NULL");
    for (int k = 1; k < 3; k++)
        if (given[k]->dtype != x->dtype)
            return eg_fail(cx, "affine: operand 1 is %s but operand %d is %s; eg_cast one of them", eg_type_name(x->dtype), k + 1,
                           eg_type_name(given[k]->dtype));
    const eg_reading *r = eg__read(cx, spec, false, 2, given, in);
    if (!r) return eg__poison(cx);
    if (!plain(r, x)) {                                                 /* two nodes; integers are summed in i64 */
        eg_tensor *y = eg_einsum(spec, x, W);
        return eg_add(y, !eg_ok(y) || y->dtype == b->dtype ? b : eg_cast(b, (eg_dtype)y->dtype));
    }
    union { affine a; char room[sizeof(affine) + 3 * EG_RANK_MAX * sizeof(uint16_t)]; } u;
    uint16_t *next = u.a.label;
    u.a.rank = r->out.items;
    const eg_reading_part *const part[] = { &r->operand[0], &r->operand[1], &r->out };
    for (int k = 0; k < 3; next += part[k++]->items)
        if (part[k]->items) memcpy(next, part[k]->letter, (size_t)part[k]->items * sizeof *next);
    return eg_apply(&affine_op, &u.a, sizeof u.a + (size_t)(next - u.a.label) * sizeof *next, 3, in);
}

const eg_op *const eg__affine_rows[] = { &affine_op, NULL };
