/* recompute.c: eg_checkpoint: y = f(xs), where the intermediate results of f are freed and computed
 * again when a backward or forward pass needs them (Chen et al. 2016).
 *
 * f runs once in a separate scope. The tensors that its graph reads from outside that scope, that
 * is, the xs and whatever f reads through `user`, become the operands of one node; then the scope
 * is closed. The rule runs f again with the same draws and in the same state (training or
 * evaluation) and differentiates that run. If the gradient is recorded, the run stays in the open
 * scope, so that it can be differentiated again; otherwise its scope is closed, too. */
#include "autograd/autograd.h"
#include <string.h>

/* The attribute of a checkpoint: the call of f, and the state in which it is repeated. */
typedef struct checkpoint_call {
    eg_function *f;
    void *user;
    uint64_t seed, draw;
    bool training;
    eg_tensor *x[]; /* the xs of eg_checkpoint */
} checkpoint_call;
typedef struct checkpoint_saved {
    eg_tensor *result;  /* what f returned, while the node is being made; NULL afterwards */
    uint64_t pull;      /* eg_ctx.pull when dx was computed for the cotangent g */
    eg_tensor *g, **dx; /* one per operand; NULL if it was not needed */
} checkpoint_saved;

/* -- the tensors that a graph reads from outside ----------------------------------------------- */
/* A list of tensors without duplicates, results before operands. */
typedef struct reads {
    int n, capacity;
    eg_tensor **x;
} reads;
static bool recompute_push(eg_ctx *cx, reads *r, eg_tensor *x)
{
    if (r->n == r->capacity) {
        eg_tensor **more = eg__alloc(
            cx, (size_t)(r->capacity = r->capacity ? 2 * r->capacity : 32) * sizeof *more);
        if (!more) return false;
        if (r->n) memcpy(more, r->x, (size_t)r->n * sizeof *more);
        r->x = more;
    }
    r->x[r->n++] = x;
    return true;
}
/* True if x existed before f was called, when the context had the number `seq_before`; a tensor of
 * the parent too, although a block makes a header for it when it is first read. */
static bool recompute_existed(const eg_tensor *x, uint64_t seq_before)
{
    return x->seq <= seq_before || x->own.lent;
}
/* Finds the tensors that y's graph reads from outside the scope. False after an error. */
static bool recompute_outside(eg_tensor *y, uint64_t seq_before, reads *found)
{
    eg_walk w = { .cx = y->cx, .oldest = seq_before + 1, .own = true };
    if (!eg__walk(&w, 1, &y)) return false;
    for (int64_t k = w.n; k-- > 0;)
        for (int i = 0; i < w.node[k]->count; i++) {
            eg_tensor *x = w.node[k]->in[i];
            if (!recompute_existed(x, seq_before) || x->sweep == w.number) continue;
            x->sweep = w.number;
            x->slot = -1;
            if (!recompute_push(y->cx, found, x)) return false;
        }
    return true;
}

/* -- f called again, recorded, with the same draws --------------------------------------------- */
/* Calls f, whose result is not used after an error, such as a switch that f left changed. */
static eg_tensor *recompute_f(eg_ctx *cx, const checkpoint_call *s)
{
    const eg_switches was = eg_switches_of(cx);
    eg_tensor *r = s->f(s->user, s->x);
    eg__switches_kept(cx, was, "checkpoint", "f");
    return r;
}
static eg_tensor *recompute_call(eg_ctx *cx, const checkpoint_call *s)
{
    const uint64_t seed = cx->seed, draw = cx->draw;
    const eg_switches outer = eg_switches_of(cx);
    const eg_tensor *blame = cx->rule_node;
    cx->seed = s->seed, cx->draw = s->draw, cx->training = s->training, cx->recording = true,
    cx->rule_node = NULL;
    eg_tensor *r = recompute_f(cx, s);
    cx->seed = seed, cx->draw = draw, cx->rule_node = blame;
    eg_switches_restore(cx, outer);
    return r;
}
/* Calls f of the checkpoint y again and returns its result. NULL after an error: f failed, or its
 * result or the tensors that it reads differ from those of the first call. */
static eg_tensor *recompute_replay(eg_tensor *y)
{
    eg_ctx *cx = y->cx;
    char where[256], a[256], b[256];
    const uint64_t seq_before = cx->seq;
    eg_tensor *r = recompute_call(cx, y->attr);
    if (cx->failed) return NULL;
    reads now = { 0 };
    if (eg_ok(r) && !(r = eg__own(r))) r = &cx->poison;
    const bool tensor = eg_ok(r) && r->cx == cx,
               like = tensor && eg__same_shape(r, y) && r->dtype == y->dtype;
    if (like && !recompute_outside(r, seq_before, &now)) return NULL;
    bool same = like && now.n == y->count;
    for (int k = 0; same && k < now.n; k++) same = now.x[k] == y->in[k];
    if (same) return r;
    eg__origin(y, where, sizeof where);
    if (!tensor)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: f returned no tensor of this context when it was called again", where);
    else if (!like)
        eg_fail_as(cx, EG_ERROR_DTYPE,
                   "%s: f returned %s %s when it was called again, and %s %s at first", where,
                   eg_type_name((eg_dtype)r->dtype), eg__dims_text(r, a, sizeof a),
                   eg_type_name((eg_dtype)y->dtype), eg__dims_text(y, b, sizeof b));
    else
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: f reads %d tensor%s from outside when it is called again, but read others, "
                   "%d in number, at first",
                   where, now.n, now.n == 1 ? "" : "s", y->count);
    return NULL;
}

/* -- checkpoint: y = f(xs), without intermediate results,  dx = the rules inside f ------------- */
/* The shape is that of f's result, which recompute_node has put into y->saved. */
static bool checkpoint_shape(eg_tensor *y)
{
    checkpoint_saved *s = y->saved;
    bool is_complex = false;
    for (int k = 0; k < y->count; k++) is_complex |= y->in[k]->dtype == EG_C128;
    /* evaluated in c128 (complex step) without saved data: call f */
    if (!s && is_complex && (s = eg__node_save(y, sizeof *s)))
        s->result = recompute_call(y->cx, y->attr);
    if (y->cx->failed) return false;
    if (s && eg_ok(s->result))
        return eg__shape_like(y, is_complex ? EG_C128 : (eg_dtype)s->result->dtype, s->result);
    eg_fail_as(y->cx, EG_ERROR_MISUSE,
               "checkpoint: the node is one call of f, and cannot be applied to other operands");
    return false;
}
static bool checkpoint_forward(eg_tensor *y)
{
    eg_tensor *made = ((const checkpoint_saved *)y->saved)->result, result = *made;
    eg__also_reads(y, made);
    result.data = eg__copy_data(made, y->cx->copy.k);
    eg__copy(y, &result);
    return true;
}
/* Evaluates the graph that f recorded, with y's operands in place of those that it was recorded
 * with. False after an error. */
static bool checkpoint_forward_c128(eg_tensor *y)
{
    eg_tensor *result = ((const checkpoint_saved *)y->saved)->result;
    const eg_op *unsupported;
    reads found = { 0 };
    if (result->dtype == EG_C128) return checkpoint_forward(y);
    if (!recompute_outside(result, y->seq, &found)) return false;
    if (found.n != y->count)
        eg_fail_as(
            y->cx, EG_ERROR_MISUSE,
            "checkpoint: f reads %d tensor%s from outside when it is called again, and %d at first",
            found.n, found.n == 1 ? "" : "s", y->count);
    eg_tensor *z =
        y->cx->failed ? NULL : eg__evaluate_c128(result, found.n, found.x, y->in, &unsupported);
    if (z)
        eg__copy(y, z);
    else if (!y->cx->failed)
        eg_fail_as(
            y->cx, EG_ERROR_UNSUPPORTED,
            "checkpoint: %s, inside f, has no forward_c128(), so that it cannot evaluate c128",
            unsupported->name);
    return z;
}

/* Sets dx to the cotangents of all operands that this backward pass needs, in one call of f, since
 * that is costly. False after an error. */
static bool recompute_gradients(eg_tensor *y, eg_tensor *g, int i, eg_tensor **dx)
{
    eg_ctx *cx = y->cx;
    const size_t size = (size_t)y->count * sizeof *dx;
    eg_tensor **x = eg__alloc(cx, size), **d = eg__alloc(cx, size);
    int n = 0;
    if (!x || !d) return false;
    for (int k = 0; k < y->count; k++) {
        /* the marks are those of the backward pass that calls this rule */
        const bool wanted = k == i || (y->in[k]->sweep == cx->sweep && y->in[k]->slot >= 0);
        if (wanted && eg__is_float(y->in[k]->dtype)) x[n++] = dx[k] = y->in[k];
    }
    const bool keep = cx->recording;
    const eg_mark m = keep ? (eg_mark){ NULL, 0 } : eg_push(cx);
    const uint64_t seq_before = cx->seq;
    eg_tensor *r = recompute_replay(y);
    const bool good = r && !eg__grad_part(r, g, seq_before, n, x, d);
    for (int k = 0; k < n; k++) x[k] = !good ? NULL : keep ? d[k] : eg__keep_like(d[k]);
    eg_pop(cx, m);
    for (int k = n = 0; k < y->count; k++)
        if (dx[k]) dx[k] = x[n++];
    return good && !cx->failed;
}
/* The first call in a visit of the node computes all cotangents that are needed; the other calls of
 * the same visit (eg_ctx.pull) return them. */
static eg_tensor *checkpoint_rule(eg_tensor *y, eg_tensor *g, int i)
{
    checkpoint_saved *s = y->saved;
    eg_ctx *cx = y->cx;
    const uint64_t pull = cx->pull;
    if (pull && s->pull == pull && s->g == g && s->dx[i]) return s->dx[i];
    eg_tensor **dx = eg__alloc(cx, (size_t)y->count * sizeof *dx);
    if (!dx) return eg__poison(cx);
    memset(dx, 0, (size_t)y->count * sizeof *dx);
    if (!recompute_gradients(y, g, i, dx)) return eg__poison(cx);
    s->pull = pull;
    s->g = g;
    s->dx = dx;
    return dx[i];
}
/* Computes the tangent of a checkpoint: calls f again and applies forward mode to that result, for
 * the operands that have a tangent. */
static eg_tensor *checkpoint_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    eg_ctx *cx = y->cx;
    const size_t size = (size_t)y->count * sizeof *dx;
    eg_tensor **x = eg__alloc(cx, size), **v = eg__alloc(cx, size);
    int n = 0;
    if (!x || !v) return eg__poison(cx);
    for (int k = 0; k < y->count; k++)
        if (dx[k]) {
            x[n] = y->in[k];
            v[n++] = dx[k];
        }
    const bool keep = cx->recording;
    const eg_mark m = keep ? (eg_mark){ NULL, 0 } : eg_push(cx);
    const uint64_t seq_before = cx->seq;
    eg_tensor *r = recompute_replay(y),
              *t = r ? eg__jvp_part(r, seq_before, n, x, v) : eg__poison(cx);
    if (!keep) t = eg__keep_like(t);
    eg_pop(cx, m);
    return t;
}

/* For the tests of operations: a function of two inputs and of a third tensor, which it reads
 * through `user`. */
static eg_tensor *recompute_sampled(void *user, eg_tensor *const *x)
{
    return eg_mul(eg_tanh(eg_einsum("ij,jk->ik", x[0], x[1])), eg_dropout(eg_exp(user), 0.3));
}
static eg_tensor *recompute_sample_call(eg_tensor *const *x)
{
    return eg_checkpoint(recompute_sampled, x[2], 2, x);
}
static const eg_sample checkpoint_samples[] = { { recompute_sample_call, "3x4, 4x2, 3x2", -1, 1 },
                                                { 0 } };
static const eg_op checkpoint_op = {
    .name = "checkpoint",
    .equation = "y = f(x_1 ... x_n), computed again in the sweep",
    .gradient = "dx_i = the rules inside f",
    .arity = -1,
    .shape = checkpoint_shape,
    .forward = checkpoint_forward,
    .rule = checkpoint_rule,
    .uses = EG_USES_OPERANDS,
    .samples = checkpoint_samples,
    .jvp = checkpoint_jvp,
    .forward_c128 = checkpoint_forward_c128,
    .takes = EG_TAKES_ALL, /* what f does with an operand is checked by the operations inside f */
};
const eg_op *const eg__recompute_ops[] = { &checkpoint_op, NULL };
bool eg__is_checkpoint(const eg_tensor *t) { return t->op == &checkpoint_op; }

/* Makes the node of a checkpoint in the scope around the open one; the open scope, with all that f
 * made, is closed afterwards. Poison after an error. */
static eg_tensor *recompute_node(const checkpoint_call *a, size_t size, eg_tensor *r,
                                 uint64_t seq_before)
{
    eg_ctx *cx = r->cx;
    eg__arena *inner = cx->top;
    reads found = { 0 };
    if (!recompute_outside(r, seq_before, &found)) return eg__poison(cx);
    if (!found.n) return eg__keep_like(r); /* r depends on no tensor from outside */
    checkpoint_saved *s = eg__alloc_in(inner->outer, sizeof *s);
    if (!s || !eg__check_taken(cx, "checkpoint", EG_TAKES_ALL, found.n, found.x))
        return eg__poison(cx);
    *s = (checkpoint_saved){ .result = r };
    cx->top = inner->outer;
    eg_tensor *y = eg__apply(cx, &checkpoint_op, a, size, s, found.n, found.x);
    cx->top = inner;
    if (!cx->receiver) s->result = NULL; /* the result is freed with the inner scope */
    return y;
}
/* If f returns a tensor from outside, that tensor is the result. Without recording only f's result
 * is kept. */
eg_tensor *eg_checkpoint(eg_function *f, void *user, int count, eg_tensor *const *xs)
{
    eg_ctx *cx = eg__context_of("checkpoint", count, xs);
    if (!cx) return NULL;
    if (!f) return eg_fail_as(cx, EG_ERROR_MISUSE, "checkpoint: the function is NULL");
    if (!eg__check_taken(cx, "checkpoint", EG_TAKES_ALL, count, xs)) return eg__poison(cx);
    const size_t size = sizeof(checkpoint_call) + (size_t)count * sizeof *xs;
    checkpoint_call *s = eg__alloc(cx, size);
    if (!s) return eg__poison(cx);
    *s = (checkpoint_call){
        .f = f, .user = user, .seed = cx->seed, .draw = cx->draw, .training = cx->training
    };
    memcpy(s->x, xs, (size_t)count * sizeof *xs);
    const eg_mark m = eg_push(cx);
    const uint64_t seq_before = cx->seq, communications = cx->communications;
    eg_tensor *r = recompute_f(cx, s), *y = eg__poison(cx);
    if (eg_ok(r) && !(r = eg__own(r))) r = &cx->poison;
    if (!cx->failed && (!eg_ok(r) || r->cx != cx))
        eg_fail_as(cx, EG_ERROR_MISUSE, "checkpoint: f returned no tensor of this context");
    if (!cx->failed)
        y = recompute_existed(r, seq_before) ? r
            : cx->recording                  ? recompute_node(s, size, r, seq_before)
                                             : eg__keep_like(r);
    /* other ranks wait in the node that this rank does not have */
    if (cx->failed && cx->communications > communications) eg__pass_refused(cx);
    eg_pop(cx, m);
    if (cx->failed) return eg__poison(cx);
    return cx->communications > communications && eg__is_checkpoint(y) ? eg__communicates(y) : y;
}
