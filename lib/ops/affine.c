/* affine.c: y = f(einsum(x, W) + b) + r in one node. A linear layer is such a node, with or without
 * an activation f and a residual r; so is a projection onto heads. */
#include "ops/ops.h"
#include <string.h>

/* -- affine: z = einsum(x, W) + b, y = f(z) + r; dz = g f'(z), dx = einsum(dz, W), dW = einsum(dz,
 * x), db = dz summed over the letters that b does not have, dr = g */
/* The attribute: the letters of x, then of W, then of y. b has the last letters of y, r has all. */
typedef struct affine {
    int rank;
    bool bias, add;
    const eg_lanes_op *f; /* NULL if f(z) = z */
    uint16_t label[];
} affine;
static int affine_operands(const affine *a) { return 2 + a->bias + a->add; }
static eg_tensor *affine_bias(const eg_tensor *y)
{
    return ((const affine *)y->attr)->bias ? y->in[2] : NULL;
}
static eg_tensor *affine_add(const eg_tensor *y)
{
    return ((const affine *)y->attr)->add ? y->in[y->count - 1] : NULL;
}
static const uint16_t *affine_letters(const eg_tensor *y, int k)
{
    const affine *a = y->attr;
    const uint16_t *x = a->label, *w = x + y->in[0]->rank, *out = w + y->in[1]->rank;
    return k == 0 ? x : k == 1 ? w : k == 2 ? out + a->rank - affine_bias(y)->rank : out;
}
static const uint16_t *affine_result_letters(const eg_tensor *y) { return affine_letters(y, 3); }

bool eg__affine_fits(eg_ctx *cx, const eg_tensor *b, const eg_tensor *add, int rank,
                     const int64_t *dim)
{
    char have[256], want[256];
    bool same = !b || b->rank <= rank;
    for (int r = 1; b && same && r <= b->rank; r++) same = b->dim[b->rank - r] == dim[rank - r];
    if (!same)
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "affine: the bias is %s, but the last axes of the result are those of %s",
                   eg__dims_text(b, have, sizeof have),
                   eg__sizes_text(rank, dim, want, sizeof want));
    else if (add && (add->rank != rank || !eg__has_sizes(add, rank, dim)))
        eg_fail_as(cx, EG_ERROR_SHAPE, "affine: .add is %s, but the result is %s",
                   eg__dims_text(add, have, sizeof have),
                   eg__sizes_text(rank, dim, want, sizeof want));
    else
        return true;
    return false;
}
static bool affine_shape(eg_tensor *y)
{
    const eg_call *c = eg__call_saved(y);
    const int rank = ((const affine *)y->attr)->rank;
    const uint16_t *const label[] = { affine_letters(y, 0), affine_letters(y, 1) };
    if (c) return eg__shape_known(y, eg__einsum_type(2, y->in), rank, c->dim, c->stride);
    return eg__einsum_shape(y, 2, label, rank, affine_result_letters(y));
}

static const eg_op affine_op, affine_activation_op;

/* -- the value -------------------------------------------------------------------------------- */
/* What a node with an activation saves. */
typedef struct affine_kept {
    const eg_call *call; /* NULL; see eg__call_saved */
    eg_tensor *z;        /* einsum(x, W) + b; NULL if the gradient of f needs only y = f(z) */
    eg_memo slope;       /* d[0] is dz */
} affine_kept;
static bool affine_needs_z(const affine *a) { return a->f->op.uses != EG_USES_RESULT || a->add; }
/* Allocates z if the context records and it is needed. False after an error. */
static bool affine_keep(eg_tensor *y)
{
    const affine *a = y->attr;
    const eg_copies *of = y->cx->copy.of;
    if (!a->f || !eg__recording(y->cx)) return true;
    if (of && y->cx->copy.k) return true; /* copy 0 has allocated z for all copies */
    affine_kept *k = eg__node_save(y, sizeof *k);
    return k && (!affine_needs_z(a) ||
                 (k->z = eg__new_copies(y->cx, of, (eg_dtype)y->dtype, y->rank, y->dim)));
}
static eg_tensor *affine_z(const eg_tensor *y)
{
    const affine_kept *k = ((const affine *)y->attr)->f ? y->saved : NULL;
    return k && !k->call ? k->z : NULL;
}
/* Computes y = f(x) by the kernel of f. */
static bool affine_apply(const eg_lanes_op *f, eg_tensor *y, const eg_tensor *x)
{
    eg_tensor of = *y, from = *x, *in = &from;
    of.op = &f->op, of.in = &in, of.count = 1, of.attr = NULL;
    return eg__lanes_run(&of, f->of[y->dtype], f->exact);
}
/* Returns b as a view with the sizes of y. */
static eg_tensor affine_spread(const eg_tensor *y, const eg_tensor *b, int64_t *step)
{
    eg_tensor all = *b;
    memset(step, 0, EG_RANK_MAX * sizeof *step);
    if (b->rank) memcpy(step + y->rank - b->rank, b->stride, (size_t)b->rank * sizeof *step);
    all.rank = y->rank, all.dim = y->dim, all.stride = step;
    return all;
}
/* Computes what follows the product in y by separate steps, for any type and layout. False after an
 * error. */
static bool affine_rest(eg_tensor *y, eg_tensor *z)
{
    const affine *a = y->attr;
    int64_t step[EG_RANK_MAX];
    if (a->bias) {
        const eg_tensor all = affine_spread(y, affine_bias(y), step);
        eg__add_to(y, &all);
    }
    if (z) eg__copy(z, y);
    if (a->f && !affine_apply(a->f, y, y)) return false;
    if (a->add) eg__add_to(y, affine_add(y));
    return true;
}
/* True if y, b and r have the layout that eg_affine_finish requires. */
static bool affine_regular(const eg_tensor *y)
{
    const eg_tensor *b = affine_bias(y), *r = affine_add(y);
    return eg__is_float(y->dtype) && eg_is_row_major(y) && (!b || eg_is_row_major(b)) &&
           (!r || eg_is_row_major(r));
}
static const eg_program *affine_program(const eg_tensor *y)
{
    return eg__einsum_program(
        y->cx, 2, y->in, (const uint16_t *[]){ affine_letters(y, 0), affine_letters(y, 1) },
        &(eg_labelled){ y->rank, y->dim, y->stride, affine_result_letters(y) }, &eg__any_order);
}
static void *affine_snapshot(eg_tensor *y)
{
    return eg__call_snapshot(y, eg__call_saved(y) ? NULL : affine_program(y));
}
/* Computes all copies of y at once, if what follows the product can be done in its tiles. False
 * otherwise. */
static bool affine_copies(const eg_tensor *y, const eg_program *p, eg_affine_finish *f)
{
    const eg_tensor *b = affine_bias(y), *r = affine_add(y), *z = affine_z(y);
    const void *const data[] = { y->in[0]->data, y->in[1]->data };
    const int64_t step[] = { eg__copy_step(y->in[0]), eg__copy_step(y->in[1]) };
    f->y_step = y->each;
    f->z_step = z ? z->each : 0;
    f->bias_step = b ? eg__copy_step(b) : 0;
    f->add_step = r ? eg__copy_step(r) : 0;
    if (f->z_step != f->y_step) f->finish.beside[0] = 0;
    if (f->add_step != f->y_step) f->finish.beside[1] = 0;
    eg__copies_done(y);
    return eg__program_run_copies(y->cx, p, &(eg_copy_steps){ y->copies->count, step, y->each },
                                  data, y->data, 1, &f->finish);
}
/* Computes the product and what follows it: in its tiles, in one pass after it, or in separate
 * steps. False after an error. */
static bool affine_forward(eg_tensor *y)
{
    const affine *a = y->attr;
    const eg_call *c = eg__call_saved(y);
    const void *const data[] = { y->in[0]->data, y->in[1]->data };
    if (!affine_keep(y)) return false;
    const eg_program *p = c ? c->program : affine_program(y);
    if (!p) return false;
    eg_tensor *const b = affine_bias(y), *const r = affine_add(y), *z = affine_z(y), its;
    if (z) { /* z of the copy that is being computed */
        its = *z;
        its.data = eg__copy_data(z, y->cx->copy.k);
        z = &its;
    }
    if (!affine_regular(y))
        return eg__program_run(y->cx, p, data, y->data, 1, false, NULL, NULL) && affine_rest(y, z);
    eg_affine_finish f = { .y = y->data,
                           .z = z ? z->data : NULL,
                           .bias = b ? b->data : NULL,
                           .features = b ? eg_size(b) : 1,
                           .function = a->f ? a->f->of[y->dtype] : NULL,
                           .add = r ? r->data : NULL };
    eg__affine_finish(&f, y->dtype);
    const bool inside = eg__program_finishes(p);
    eg_tensor *all = inside && y->each ? eg__copies_all(y) : NULL;
    if (all) all->saved = y->saved; /* z, which affine_keep allocated */
    if (all) return affine_copies(all, p, &f);
    if (!eg__program_run(y->cx, p, data, y->data, 1, false, inside ? &f.finish : NULL, NULL))
        return false;
    if (!inside && eg_size(y)) eg__affine_finish_all(y->cx, &f, eg_size(y));
    return true;
}

/* -- gradients -------------------------------------------------------------------------------- */
/* Returns h = f(z) as a node of the operation f. If the context does not record, h is a header for
 * existing elements; else h is computed again, and recorded. NULL after an error. */
static eg_tensor *affine_activated(const eg_tensor *y)
{
    const affine *a = y->attr;
    eg_ctx *cx = y->cx;
    const affine_kept *k = y->saved;
    eg_tensor *z = affine_z(y);
    if (!eg__recording(cx) && k && !k->call) {
        if (a->add && a->f->op.uses == EG_USES_RESULT) return eg_apply(&a->f->op, NULL, 0, 1, &z);
        eg_tensor *h = eg__alias((eg_tensor *)(uintptr_t)y, y->rank, y->dim, y->stride, 0),
                  **in = eg__alloc(cx, sizeof *in);
        if (!eg_ok(h) || !in) return NULL;
        *in = z, h->in = in, h->count = z != NULL, h->op = &a->f->op;
        return h;
    }
    affine *plain = eg__alloc(cx, y->attr_size);
    if (!plain) return NULL;
    memcpy(plain, a, y->attr_size);
    plain->f = NULL, plain->add = false;
    z = eg_apply(&affine_op, plain, y->attr_size, affine_operands(plain), y->in);
    return eg_apply(&a->f->op, NULL, 0, 1, &z);
}
/* Returns dz = g f'(z), which is computed once for all operands. */
static eg_tensor *affine_slope(eg_tensor *y, eg_tensor *g)
{
    affine_kept *k = y->saved;
    if (k && k->call) k = NULL;
    if (k && eg__remembered(&k->slope, g)) return k->slope.d[0];
    eg_tensor *h = affine_activated(y);
    if (!eg_ok(h)) return eg__poison(y->cx);
    eg_tensor *dz = ((const affine *)y->attr)->f->op.rule(h, g, 0);
    if (k && eg_ok(dz)) {
        k->slope.d[0] = dz;
        eg__remember(&k->slope, g);
    }
    return dz;
}
/* The cotangents of x and W are those of the einsum, and have the same keys in the cache of
 * plans. */
static eg_tensor *affine_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const affine *a = y->attr;
    const int n = i < 2 ? 2 : 1;
    if (a->add && i == y->count - 1) return g;
    if (a->f) g = affine_slope(y, g);
    eg_tensor *const in[] = { g, y->in[i ? 0 : 1] };
    const eg_plan_key w = { EG_KEY_COTANGENT + i + (i < 2 ? 0 : y->in[2]->rank), n,
                            y->attr_size - sizeof *a, a->label, in };
    if (!eg__check_taken(y->cx, "affine", EG_TAKES_HALVES, n, in)) return eg__poison(y->cx);
    eg_tensor *again = eg__einsum_lookup(y->cx, &w, 1);
    if (again) return again;
    return eg__einsum_keyed(
        &w, &eg__any_order, 1, n, in,
        (const uint16_t *[]){ affine_result_letters(y), affine_letters(y, i ? 0 : 1) },
        y->in[i]->rank, affine_letters(y, i));
}
bool eg__affine_into(eg_tensor *y, eg_tensor *g, int i, eg_tensor *to, bool add)
{
    if (y->op != &affine_op && y->op != &affine_activation_op) return false;
    const affine *a = y->attr;
    const uint16_t *mine;
    if ((a->add && i == y->count - 1) || !eg__is_float(to->dtype)) return false;
    mine = affine_letters(y, i);
    for (int k = 0; k < to->rank; k++) /* the product would write outside of a diagonal */
        if (eg__label_at(mine, k, mine[k]) >= 0) return false;
    if (a->f) g = affine_slope(y, g);
    eg_tensor *const in[] = { g, y->in[i ? 0 : 1] };
    const int n = i < 2 ? 2 : 1;
    if (!eg__check_all(y->cx, "affine", n, in)) return false;
    const uint64_t begun = eg__fpmode_begin(y->cx->flush);
    const bool good = eg__einsum_into(
        to, 1, add, &eg__any_order, n, in,
        (const uint16_t *[]){ affine_result_letters(y), affine_letters(y, i ? 0 : 1) }, mine);
    eg__fpmode_end(begun);
    return good;
}
/* Returns dy = f'(z) dz + dr, where dz is db plus, for x and for W, the einsum with the tangent in
 * place of that operand. */
static eg_tensor *affine_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    const affine *a = y->attr;
    const uint16_t *const label[] = { affine_letters(y, 0), affine_letters(y, 1) };
    eg_tensor *sum = a->bias && dx[2] ? eg_expand_n(dx[2], y->rank, y->dim) : NULL,
              *const more = a->add ? dx[y->count - 1] : NULL;
    for (int i = 0; i < 2; i++) {
        if (!dx[i]) continue;
        eg_tensor *const in[] = { i ? y->in[0] : dx[0], i ? dx[1] : y->in[1] },
                         *part = eg__einsum(2, in, label, y->rank, affine_result_letters(y));
        sum = sum ? eg__add(sum, part) : part;
    }
    if (a->f && sum) { /* the Jacobian of f is symmetric */
        eg_tensor *h = affine_activated(y);
        sum = eg_ok(h) ? a->f->op.rule(h, sum, 0) : eg__poison(y->cx);
    }
    return sum && more ? eg__add(sum, more) : sum ? sum : more;
}
static void affine_cost(const eg_tensor *y, eg_op_cost *cost)
{
    eg__network_cost(y, 2, (const uint16_t *[]){ affine_letters(y, 0), affine_letters(y, 1) },
                     &(eg_labelled){ y->rank, y->dim, y->stride, affine_result_letters(y) }, cost);
    if (affine_z(y)) cost->bytes += (double)eg_size(y) * eg__width[y->dtype];
}

/* -- the two operations ----------------------------------------------------------------------- */
static eg_tensor *affine_sampled(const char *spec, const char *f, eg_tensor *const *x, bool bias,
                                 bool add)
{
    return eg__affine(&(eg_affine_call){ .spec = spec,
                                         .x = x[0],
                                         .W = x[1],
                                         .b = bias ? x[2] : NULL,
                                         .add = add ? x[2 + bias] : NULL,
                                         .f = f ? eg__pointwise(f) : NULL,
                                         .name = f });
}
static eg_tensor *affine_linear(eg_tensor *const *x)
{
    return affine_sampled("bi,io->bo", NULL, x, true, false);
}
static eg_tensor *heads(eg_tensor *const *x)
{
    return affine_sampled("ibm,mhd->bihd", NULL, x, true, false);
}
static eg_tensor *affine_residual(eg_tensor *const *x)
{
    return affine_sampled("bihd,hdm->bim", NULL, x, true, true);
}
static eg_tensor *affine_gelu(eg_tensor *const *x)
{
    return affine_sampled("bi,io->bo", "gelu", x, true, false);
}
static eg_tensor *affine_silu_residual(eg_tensor *const *x)
{
    return affine_sampled("ibm,mhd->bihd", "silu", x, true, true);
}
static eg_tensor *affine_exp(eg_tensor *const *x) /* the gradient of f reads its result */
{
    return affine_sampled("bi,io->bo", "exp", x, false, false);
}
static eg_tensor *affine_exp_residual(eg_tensor *const *x)
{
    return affine_sampled("bi,io->bo", "exp", x, false, true);
}
static const eg_sample affine_samples[] = { { affine_linear, "3x4, 4x2, 2", 0, 0 },
                                            { heads, "2x3x2, 2x2x2, 2x2", 0, 0 },
                                            { affine_residual, "2x3x2x2, 2x2x3, 3, 2x3x3", 0, 0 },
                                            { 0 } };
static const eg_sample affine_activation_samples[] = {
    { affine_gelu, "3x4, 4x2, 2", 0, 0 },
    { affine_silu_residual, "2x3x2, 2x2x2, 2x2, 3x2x2x2", 0, 0 },
    { affine_exp, "3x4, 4x2", -1, 1 },
    { affine_exp_residual, "3x4, 4x2, 3x2", -1, 1 },
    { 0 },
};
static const eg_op affine_op = {
    .name = "affine",
    .equation = "y = einsum(x, W) + b + r",
    .gradient = "dx = einsum(g, W), dW = einsum(g, x), db = sum of g, dr = g",
    .arity = -1,
    .shape = affine_shape,
    .forward = affine_forward,
    .rule = affine_rule,
    .uses = EG_USES_OTHERS,
    .samples = affine_samples,
    .jvp = affine_jvp,
    .forward_c128 = affine_forward,
    .cost = affine_cost,
    .snapshot = affine_snapshot,
    .takes = EG_TAKES_HALVES,
};
static const eg_op affine_activation_op = {
    .name = "affine_activation",
    .equation = "y = f(z) + r, z = einsum(x, W) + b",
    .gradient = "dz = g f'(z), dx = einsum(dz, W), dW = einsum(dz, x), db = sum of dz, dr = g",
    .arity = -1,
    .shape = affine_shape,
    .forward = affine_forward,
    .rule = affine_rule,
    .uses = EG_USES_ALL,
    .samples = affine_activation_samples,
    .jvp = affine_jvp,
    .forward_c128 = affine_forward,
    .cost = affine_cost,
    .snapshot = affine_snapshot,
    .takes = EG_TAKES_HALVES,
};
const eg_op *const eg__affine_ops[] = { &affine_op, &affine_activation_op, NULL };

/* -- the call --------------------------------------------------------------------------------- */
/* True if the operation can compute this call: floats, no groups, no letter that only one operand
 * has, and none that the output repeats. */
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
/* Applies the operation by a planned call. Afterwards y->saved is what the operation saves, not the
 * call. */
static eg_tensor *affine_made(eg_ctx *cx, const eg_call *c, int count, eg_tensor *const *x)
{
    if (!c) return eg__poison(cx);
    eg_tensor *y = eg__apply(cx, ((const affine *)c->attr)->f ? &affine_activation_op : &affine_op,
                             c->attr, c->attr_size, &c, count, x);
    if (y->saved == &c) y->saved = NULL; /* the cache may evict the call */
    return y;
}
/* Plans the call. Planning may evict the entry that r points to, so its letters are copied
 * first. */
static eg_tensor *affine_planned(eg_ctx *cx, const eg_affine_call *o, const eg_plan_key *what,
                                 const eg_spec_labels *r, eg_tensor *const *x)
{
    union {
        affine a;
        char buffer[sizeof(affine) + 3 * EG_RANK_MAX * sizeof(uint16_t)];
    } u = { .a = { .rank = r->out.items, .bias = o->b != NULL, .add = o->add != NULL, .f = o->f } };
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
    const int count = affine_operands(&u.a);
    const bool countable = eg__einsum_layout(2, x, label, u.a.rank, label[2], dim, stride);
    if (!eg__affine_fits(cx, o->b, o->add, u.a.rank, dim)) return eg__poison(cx);
    if (!countable) /* eg__apply records the error */
        return eg__apply(cx, &affine_op, &u.a, size, NULL, count, x);
    const eg_labelled to = { u.a.rank, dim, stride, label[2] };
    return affine_made(cx, eg__call_plan(cx, what, &u.a, size, 2, x, label, &to, &eg__any_order),
                       count, x);
}
/* Computes the same by separate operations, for calls that this operation cannot compute, such as
 * those on integers, which are summed in i64. */
static eg_tensor *affine_composed(const eg_affine_call *o)
{
    eg_tensor *y = eg_einsum(o->spec, o->x, o->W), *b = o->b, *add = o->add;
    if (!eg_ok(y)) return y;
    if (!eg__affine_fits(y->cx, b, add, y->rank, y->dim)) return eg__poison(y->cx);
    if (b && y->dtype != b->dtype) b = eg_cast(b, (eg_dtype)y->dtype);
    if (b) y = eg__add(y, eg_expand_n(b, y->rank, y->dim));
    if (o->f) y = eg_apply(&o->f->op, NULL, 0, 1, &y);
    if (add && eg_ok(y) && y->dtype != add->dtype) add = eg_cast(add, (eg_dtype)y->dtype);
    return add ? eg__add(y, add) : y;
}
/* True if all tensors of the call have the dtype that the product reads; f16 and bf16 of x and W
 * are converted to it. Else records an error with the names that the caller uses. */
static bool affine_dtypes(eg_ctx *cx, eg_dtype dtype, int count, eg_tensor *const *x,
                          const char *const *called)
{
    const int first = x[0]->dtype != dtype && x[1]->dtype == dtype;
    for (int k = 0; k < count; k++) {
        const bool half = k < 2 && eg__is_half(x[k]->dtype) && eg__is_float(dtype);
        if (x[k]->dtype == dtype || half) continue;
        eg_fail_as(cx, EG_ERROR_DTYPE, "affine: %s is %s but %s is %s; eg_cast one of them",
                   called[first], eg_type_name((eg_dtype)x[first]->dtype), called[k],
                   eg_type_name((eg_dtype)x[k]->dtype));
        return false;
    }
    return true;
}
/* Without b, r and f the node is an einsum, cached under its own key. The spec is bound here first,
 * so that its errors name affine. */
static eg_tensor *affine_einsum(eg_ctx *cx, eg_dtype dtype, const char *spec, eg_tensor *const *x,
                                const char *const *called)
{
    const eg_plan_key what = { EG_KEY_SPEC, 2, strlen(spec), spec, x };
    eg_tensor *in[2], *again = eg__einsum_lookup(cx, &what, 1);
    if (again) return again;
    if (!affine_dtypes(cx, dtype, 2, x, called) ||
        !eg__labels_of_spec(cx, "affine", spec, false, 2, x, in))
        return eg__poison(cx);
    return eg_einsum(spec, x[0], x[1]);
}
/* Finds the call in the cache, or binds the spec and plans it. */
eg_tensor *eg__affine(const eg_affine_call *o)
{
    eg_tensor *given[4] = { o->x, o->W }, *in[4];
    static const char *const name[] = { "x", "W", "b", ".add" };
    const char *called[4] = { name[0], name[1] };
    int count = 2;
    if (o->b) called[count] = name[2], given[count++] = o->b;
    if (o->add) called[count] = name[3], given[count++] = o->add;
    eg_ctx *cx = eg__context_of("affine", count, given);
    if (!cx || !eg__check_taken(cx, "affine", EG_TAKES_HALVES, count, given)) return eg__poison(cx);
    const eg_dtype dtype = eg__einsum_reads(2, given); /* f16 and bf16 are converted to it */
    if (o->b && eg__is_half(o->b->dtype) && eg__is_float(dtype)) {
        eg_affine_call wide = *o;
        wide.b = eg_cast(o->b, dtype);
        return eg__affine(&wide);
    }
    if (!o->spec) return eg_fail_as(cx, EG_ERROR_MISUSE, "affine: the spec is NULL");
    if (count == 2 && !o->f) return affine_einsum(cx, dtype, o->spec, given, called);
    eg_key_text more;
    more.length = 0;
    more.fits = true;
    const bool usual = o->b && !o->add && !o->f;
    if (!usual) {
        eg__key_put(&more, strlen(o->spec), o->spec);
        eg__key_put(&more, 2, o->b ? "\nb" : "\n-"); /* no spec contains these */
        if (o->f) eg__key_put(&more, strlen(o->name), o->name);
    }
    const eg_plan_key what = { EG_KEY_AFFINE, count, usual ? strlen(o->spec) : more.length,
                               usual ? o->spec : more.text, given },
                      *const key = more.fits ? &what : NULL;
    const eg_call *c = key ? eg__plans_find(cx, key) : NULL;
    if (c) return affine_made(cx, c, count, given);
    if (!affine_dtypes(cx, dtype, count, given, called)) return eg__poison(cx);
    memcpy(in, given, sizeof in);
    const eg_spec_labels *r = eg__labels_of_spec(cx, "affine", o->spec, false, 2, given, in);
    if (!r) return eg__poison(cx);
    return affine_plain(r, dtype) ? affine_planned(cx, o, key, r, in) : affine_composed(o);
}
