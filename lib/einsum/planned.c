/* planned.c: einsums on labels, called. The program of a call is found in the cache of plans or
 * planned and stored there; then the operation (einsum.c) is applied with it, or, if nothing is
 * recorded, the program alone is run. */
#include "einsum/einsum.h"
#include <string.h>

/* -- the program: from the cache of plans, or planned ------------------------------------------ */
eg_planning *eg__planning(eg_ctx *cx)
{
    eg_planning *p = eg__scratch(cx, EG_SCRATCH_PLANNING, sizeof *p);
    if (!p) eg_name_memory_error(cx, "einsum");
    return p;
}
bool eg__einsum_drafted(eg_ctx *cx, eg_planning *p, int count, eg_tensor *const *x,
                        const uint16_t *const *label, const eg_labelled *out,
                        const eg_order_args *order)
{
    for (int k = 0; k < count; k++) {
        p->in[k] = (eg_labelled){ x[k]->rank, x[k]->dim, x[k]->stride, label[k] };
        p->of[k] = (eg_dtype)x[k]->dtype;
    }
    p->task = (eg_contraction){ eg__einsum_reads(count, x), p->of, count, p->in, out, *order };
    if (eg__draft(cx, &p->task, &p->draft)) return true;
    eg_name_memory_error(cx, "einsum");
    return false;
}
/* Returns memory for an entry in the cache of plans or, if the entry does not fit or there is no
 * key, in the open scope; NULL after an error. */
static void *memory_for(eg_ctx *cx, const eg_plan_key *key, size_t bytes)
{
    void *memory = key ? eg__plans_add(cx, key, bytes) : NULL;
    if (!memory && !(memory = eg__alloc(cx, bytes))) eg_name_memory_error(cx, "einsum");
    return memory;
}
static void put_order(eg_key_text *t, const eg_order_args *order)
{
    t->fits &= order->steps < 0 || order->path; /* a missing path is refused later */
    eg__key_put(t, sizeof order->limit, &order->limit);
    eg__key_put(t, sizeof order->keep_limit, &order->keep_limit);
    eg__key_put(t, sizeof order->steps, &order->steps);
    eg__key_put(t, sizeof order->numbered, &order->numbered);
    if (order->path && order->steps > 0)
        eg__key_put(t, (size_t)order->steps * sizeof *order->path, order->path);
}
/* Returns the program for an einsum that no call made: one that is evaluated again, into a target,
 * or in a given order. NULL after an error. */
const eg_program *eg__einsum_program(eg_ctx *cx, int count, eg_tensor *const *x,
                                     const uint16_t *const *label, const eg_labelled *out,
                                     const eg_order_args *order)
{
    eg_tensor result = { .dtype = (uint8_t)eg__einsum_reads(count, x),
                         .rank = (uint8_t)out->rank,
                         .dim = (int64_t *)(uintptr_t)out->dim,
                         .stride = (int64_t *)(uintptr_t)out->stride };
    eg_tensor *all[EG_EINSUM_MAX + 1];
    eg_key_text t;
    t.length = 0;
    t.fits = true;
    for (int k = 0; k <= count; k++) {
        all[k] = k < count ? x[k] : &result;
        eg__key_put(&t, all[k]->rank * sizeof **label, k < count ? label[k] : out->label);
    }
    put_order(&t, order);
    const eg_plan_key key = { EG_KEY_PROGRAM, count + 1, t.length, t.text, all };
    const eg_program *found = t.fits ? eg__plans_find(cx, &key) : NULL;
    if (found) return found;
    eg_planning *p = eg__planning(cx);
    if (!p || !eg__einsum_drafted(cx, p, count, x, label, out, order)) return NULL;
    void *memory = memory_for(cx, t.fits ? &key : NULL, eg__program_bytes(&p->draft));
    return memory ? eg__program(memory, &p->draft) : NULL;
}
/* Computes all copies of y from those of x. False after an error. */
bool eg__einsum_run_copies(const eg_tensor *y, const eg_program *p, int count, eg_tensor *const *x)
{
    const void *data[EG_EINSUM_MAX];
    int64_t step[EG_EINSUM_MAX];
    for (int k = 0; k < count; k++) {
        data[k] = x[k]->data;
        step[k] = eg__copy_step(x[k]);
    }
    eg__copies_done(y);
    return eg__program_run_copies(y->cx, p, &(eg_copy_steps){ y->copies->count, step, y->each },
                                  data, y->data, eg__einsum_alpha(y), NULL);
}
bool eg__einsum_run(eg_ctx *cx, const eg_program *p, int count, eg_tensor *const *x, void *out,
                    double alpha, bool add, void *const *kept)
{
    const void *data[EG_EINSUM_MAX];
    /* operands in a network's step may have copies: use the copy that is being computed */
    for (int k = 0; k < count; k++) data[k] = eg__copy_data(x[k], cx->copy.of ? cx->copy.k : 0);
    return eg__program_run(cx, p, data, out, alpha, add, NULL, kept);
}

/* -- planned calls ----------------------------------------------------------------------------- */
/* The entry holds the call, the sizes and strides of the result, the attribute, and the program. */
eg_call *eg__call_plan(eg_ctx *cx, const eg_plan_key *what, const void *attr, size_t size,
                       int count, eg_tensor *const *x, const uint16_t *const *label,
                       const eg_labelled *out, const eg_order_args *order)
{
    eg_planning *p = eg__planning(cx);
    if (!p || !eg__einsum_drafted(cx, p, count, x, label, out, order)) return NULL;
    const bool tree = count > 2 && eg__is_float(eg__einsum_reads(count, x));
    const size_t sizes = (size_t)out->rank * sizeof *out->dim,
                 at_attr = eg__up16(sizeof(eg_call) + 2 * sizes),
                 at_tree = eg__up16(at_attr + size),
                 at_program = at_tree + (tree ? eg__tree_bytes(&p->draft) : 0);
    char *memory = memory_for(cx, what, at_program + eg__program_bytes(&p->draft));
    if (!memory) return NULL;
    eg_call *c = (eg_call *)(void *)memory;
    int64_t *dim = (int64_t *)(void *)(c + 1);
    *c = (eg_call){ .dtype = eg__einsum_type(count, x),
                    .rank = out->rank,
                    .dim = dim,
                    .stride = dim + out->rank,
                    .attr_size = size,
                    .attr = memcpy(memory + at_attr, attr, size),
                    .program = eg__program(memory + at_program, &p->draft) };
    if (tree) {
        eg_tree *t = eg__tree(memory + at_tree, &p->draft);
        t->number = ++cx->trees;
        c->tree = t;
    }
    if (sizes) memcpy(dim, out->dim, sizes);
    if (sizes) memcpy(dim + out->rank, out->stride, sizes);
    return c;
}
/* Applies an operation by a planned call. y->saved is the call while shape() and forward() run;
 * afterwards it is NULL, since the call may be evicted from the cache. */
static eg_tensor *call_apply(eg_ctx *cx, const eg_op *op, const eg_call *c, const void *attr,
                             size_t attr_size, int count, eg_tensor *const *x)
{
    eg_tensor *y = eg__apply(cx, op, attr, attr_size, &c, count, x);
    y->saved = NULL;
    return y;
}
/* A planned call is copied with its program and operands, since the cache may evict it before the
 * next run. */
void *eg__call_snapshot(eg_tensor *y, const eg_program *p)
{
    const eg_call *c = eg__call_saved(y);
    const int count = c && c->x ? c->count : 0;
    typedef struct settled {
        const eg_call *made;
        eg_call call;
        eg_tensor *x[];
    } settled;
    if (c) p = c->program;
    if (!p) return NULL;
    const size_t head = eg__up16(sizeof(settled) + (size_t)count * sizeof *c->x);
    char *memory = eg__alloc(y->cx, head + p->bytes);
    if (!memory) return NULL;
    settled *s = (settled *)(void *)memory;
    *s = (settled){ .made = &s->call, .call = { .count = count } };
    s->call.program = eg__program_copy(memory + head, p);
    if (count) s->call.x = memcpy(s->x, c->x, (size_t)count * sizeof *c->x);
    for (int k = 0; k < count; k++) eg__also_reads(y, s->x[k]);
    return s;
}
const eg_order_args eg__any_order = { .limit = 0, .steps = -1 };
eg_tensor *eg__einsum(int count, eg_tensor *const *x, const uint16_t *const *label, int out_rank,
                      const uint16_t *out)
{
    return eg__einsum_keyed(NULL, &eg__any_order, 1, count, x, label, out_rank, out);
}
/* The labels of a call, with room for the largest number. */
typedef union any_labels {
    eg_einsum_attr l;
    char memory[sizeof(eg_einsum_attr) + (EG_EINSUM_MAX + 1) * EG_RANK_MAX * sizeof(uint16_t)];
} any_labels;
/* Applies a planned call with a factor, which is not part of the plan. */
static eg_tensor *einsum_apply(eg_ctx *cx, const eg_call *c, double alpha, int count,
                               eg_tensor *const *x)
{
    any_labels with;
    const eg_einsum_attr *l = c->attr;
    if (!eg__needs_node(cx, count, x)) {
        eg_tensor *y = eg__new_unrecorded(cx, c->dtype, c->rank, c->dim, c->stride);
        if (y && eg__einsum_run(cx, c->program, count, x, y->data, alpha, false, NULL)) return y;
        if (y) y->live = EG_DEAD;
        return eg_name_memory_error(cx, "einsum");
    }
    if (alpha != 1) {
        l = memcpy(&with, l, c->attr_size);
        with.l.alpha = alpha;
    }
    eg_tensor *y = (c->tree && cx->recording ? eg__network_apply : call_apply)(
        cx, &eg__einsum_op, c, l, c->attr_size, count, x);
    return eg_ok(y) ? y : eg_name_memory_error(cx, "einsum");
}
/* True if the call will be recorded as a network of f64 in which two operands of f16 or bf16 may be
 * contracted first: the result of such a pair is f32. */
static bool pairs_halves(const eg_ctx *cx, int count, eg_tensor *const *x)
{
    int halves = 0;
    if (count < 3 || !cx->recording) return false;
    for (int k = 0; k < count; k++) halves += eg__is_half(x[k]->dtype);
    return halves > 1 && eg__einsum_reads(count, x) == EG_F64;
}
eg_tensor *eg__einsum_lookup(eg_ctx *cx, const eg_plan_key *what, double alpha)
{
    if (pairs_halves(cx, what->count, what->x)) return NULL;
    const eg_call *c = eg__plans_find(cx, what);
    return c ? einsum_apply(cx, c, alpha, what->count, what->x) : NULL;
}
/* Writes the attribute of a node. Returns its bytes. */
static size_t put_labels(any_labels *u, int64_t limit, int count, eg_tensor *const *x,
                         const uint16_t *const *label, int out_rank, const uint16_t *out)
{
    eg_einsum_attr *l = &u->l;
    uint16_t *next = l->label;
    for (int k = 0; k < count; next += x[k++]->rank)
        if (x[k]->rank) memcpy(next, label[k], x[k]->rank * sizeof *out);
    if (out_rank) memcpy(next, out, (size_t)out_rank * sizeof *out);
    l->alpha = 1;
    l->limit = limit;
    l->out_rank = out_rank;
    return EG_EINSUM_HEAD + (size_t)(next + out_rank - l->label) * sizeof *out;
}
/* Looks up a call in the cache, or plans and stores it there: with the best order under the given
 * key or its labels, else under its order and labels. NULL after an error. */
static const eg_call *call_of(eg_ctx *cx, const eg_plan_key *what, const eg_order_args *how,
                              int count, eg_tensor *const *x, const uint16_t *const *label,
                              int out_rank, const uint16_t *out)
{
    any_labels u;
    eg_einsum_attr *l = &u.l;
    const size_t size = put_labels(&u, how->limit, count, x, label, out_rank, out),
                 letters = size - EG_EINSUM_HEAD;
    const bool any = !how->limit && !how->keep_limit && !how->path && how->steps < 0;
    eg_key_text ordered;
    ordered.length = 0;
    ordered.fits = true;
    if (!any) {
        put_order(&ordered, how);
        eg__key_put(&ordered, letters, l->label);
    }
    const eg_plan_key by_labels =
        any ? (eg_plan_key){ EG_KEY_LABELS, count, letters, l->label, x }
            : (eg_plan_key){ EG_KEY_ORDERED, count, ordered.length, ordered.text, x };
    const eg_call *again = ordered.fits && !(any && what) ? eg__plans_find(cx, &by_labels) : NULL;
    if (again) return again;
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
    if (!eg__einsum_layout(count, x, label, out_rank, out, dim, stride)) {
        eg_apply(&eg__einsum_op, l, size, count, x); /* eg__einsum_shape records the error */
        return NULL;
    }
    const eg_labelled to = { out_rank, dim, stride, out };
    const eg_plan_key *key = any && what ? what : ordered.fits ? &by_labels : NULL;
    return eg__call_plan(cx, key, l, size, count, x, label, &to, how);
}
/* An einsum of one operand whose axes are only permuted becomes a view. Any other call is that of
 * call_of. */
eg_tensor *eg__einsum_keyed(const eg_plan_key *what, const eg_order_args *how, double alpha,
                            int count, eg_tensor *const *x, const uint16_t *const *label,
                            int out_rank, const uint16_t *out)
{
    eg_ctx *cx = eg__context_of("einsum", count, x);
    if (!cx) return NULL;
    if (!eg__check_taken(cx, "einsum", EG_TAKES_HALVES, count, x)) return eg__poison(cx);
    if (count == 1 && alpha == 1 && out_rank == x[0]->rank &&
        x[0]->dtype == eg__einsum_type(1, x) && eg__labels_distinct(out, out_rank) &&
        eg__labels_distinct(label[0], out_rank)) {
        int axes[EG_RANK_MAX];
        bool same = true;
        for (int r = 0; r < out_rank; r++) {
            axes[r] = eg__label_at(label[0], out_rank, out[r]);
            same &= axes[r] == r;
        }
        return same ? x[0] : eg_permute_n(x[0], out_rank, axes);
    }
    if (pairs_halves(cx, count, x)) {
        eg_tensor *wide[EG_EINSUM_MAX];
        for (int k = 0; k < count; k++)
            wide[k] = eg__is_half(x[k]->dtype) ? eg_cast(x[k], EG_F64) : x[k];
        return eg__einsum_keyed(NULL, how, alpha, count, wide, label, out_rank, out);
    }
    const eg_call *c = call_of(cx, what, how, count, x, label, out_rank, out);
    return c ? einsum_apply(cx, c, alpha, count, x) : eg__poison(cx);
}
eg_tensor *eg__einsum_given(const eg_call *given, const eg_order_args *how, int count,
                            eg_tensor *const *x, const uint16_t *const *label, const uint16_t *out)
{
    eg_ctx *cx = eg__here(x[0]->cx);
    any_labels u;
    eg_call c = *given;
    const size_t size = put_labels(&u, 0, count, x, label, c.rank, out);
    if (count <= 2 || !cx->recording)
        return call_apply(cx, &eg__einsum_op, &c, &u.l, size, count, x);
    const eg_call *planned = call_of(cx, NULL, how, count, x, label, c.rank, out);
    if (!planned) return eg__poison(cx);
    c.tree = planned->tree;
    return eg__network_apply(cx, &eg__einsum_op, &c, &u.l, size, count, x);
}

/* An einsum into an existing tensor, which runs of a captured step repeat. */
typedef struct einsum_target {
    const eg_program *program;
    double alpha;
    bool add;
} einsum_target;
static bool act_einsum(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    const einsum_target *t = arg;
    return eg__einsum_run(cx, t->program, count, x, to->data, t->alpha, t->add, NULL);
}
bool eg__einsum_into(eg_tensor *target, double alpha, bool add, const eg_order_args *how, int count,
                     eg_tensor *const *x, const uint16_t *const *label, const uint16_t *out)
{
    eg_ctx *cx = target->cx;
    einsum_target to = { .alpha = alpha, .add = add };
    to.program = eg__einsum_program(
        cx, count, x, label, &(eg_labelled){ target->rank, target->dim, target->stride, out }, how);
    if (to.program && eg__capturing(cx)) {
        void *memory = eg__alloc(cx, to.program->bytes);
        to.program = memory ? eg__program_copy(memory, to.program) : NULL;
    }
    return to.program && eg__act(cx, act_einsum, target, count, x, &to, sizeof to, 0);
}
