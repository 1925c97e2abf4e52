/* ring_recorded.c: the second and higher derivatives of attention over a divided sequence.
 *
 * The gradient is computed by recorded operations, which can be differentiated again. Each rank
 * gathers the divided tensors into whole ones, computes attention over the whole sequence and the
 * gradient of its gradient, and keeps its part of the result. All ranks compute the same, so the
 * bits do not depend on the number of ranks; time and memory are those of one process.
 *
 * Two operations convert between the parts and the whole, and each is the transpose of the other:
 * x_whole = Σ_r P_r x_r; and since the whole is the same on every rank, rank r gets P_rᵀ g from the
 * cotangent g of x_whole. */
#include "attention/ring_walk.h"

/* -- from parts to the whole, and back -------------------------------------------------------- */
typedef struct part_of {
    const eg_ring *r;
    bool key; /* true for keys, false for queries */
    int axis;
} part_of;
static const part_of *part_attr(const eg_tensor *y) { return eg_attr(y); }
static const eg_ring_side *part_side(const part_of *p)
{
    return p->key ? &p->r->key : &p->r->query;
}
/* Copies block b from the tensor of its rank, which has `positions` positions, to the whole tensor,
 * or back. */
static void part_copy(const part_of *p, const int64_t *dims, int rank, const eg_ring_block *b,
                      int64_t positions, char *part, char *whole, bool to_whole)
{
    const eg_ring_side *s = part_side(p);
    const size_t width = p->r->dtype == EG_F64 ? 8 : 4;
    int64_t outer = 1, inner = 1;
    for (int a = 0; a < p->axis; a++) outer *= dims[a];
    for (int a = p->axis + 1; a < rank; a++) inner *= dims[a];
    for (int64_t k = 0; k < outer; k++) {
        char *x = part + (size_t)((k * positions + b->at) * inner) * width,
             *y = whole + (size_t)((k * s->length + b->block * p->r->block) * inner) * width;
        memcpy(to_whole ? y : x, to_whole ? x : y, (size_t)(b->count * inner) * width);
    }
}
static bool part_shape(eg_tensor *y, int64_t size)
{
    int64_t dims[EG_RANK_MAX];
    const eg_tensor *x = eg_operand(y, 0);
    memcpy(dims, eg_dims(x), (size_t)eg_rank(x) * sizeof *dims);
    dims[part_attr(y)->axis] = size;
    return eg_result(y, eg_type(x), eg_rank(x), dims);
}
/* Returns the blocks of a rank and sets how many positions they have; NULL after an error. */
static eg_ring_block *part_blocks(const eg_tensor *y, int rank, int *n, int64_t *positions)
{
    const part_of *p = part_attr(y);
    eg_ring_walk w = { .r = p->r, .cx = y->cx };
    eg_ring_block *b = eg__ring_blocks(&w, part_side(p), rank, n);
    *positions = b && *n ? b[*n - 1].at + b[*n - 1].count : 0;
    return b;
}

static bool ring_whole_shape(eg_tensor *y)
{
    return part_shape(y, part_side(part_attr(y))->length);
}
/* Gathers the positions of all ranks. The parts are padded to the largest number of positions. */
static bool ring_whole_forward(eg_tensor *y)
{
    const part_of *p = part_attr(y);
    const eg_tensor *x = eg_operand(y, 0);
    const int ranks = eg_ranks_count(p->r->ranks);
    const size_t length = (size_t)part_side(p)->length, width = p->r->dtype == EG_F64 ? 8 : 4,
                 place = length ? (size_t)eg_size(y) / length * width : 0;
    eg_ring_walk w = { .r = p->r, .cx = y->cx, .width = width };
    const eg_mark m = eg_push(y->cx);
    int64_t positions, most = 0;
    int n = 0;
    bool good = true;
    for (int k = 0; k < ranks && good; k++) {
        good = part_blocks(y, k, &n, &positions) != NULL;
        most = positions > most ? positions : most;
    }
    const size_t row = (size_t)most * place;
    char *mine = eg__alloc(y->cx, row + 1), *all = eg__alloc(y->cx, row * (size_t)ranks + 1);
    if (mine && all) eg__ring_copy(&w, mine, eg_operand(y, 0));
    good = !eg_ranks_barrier(p->r->ranks) && good && !eg_ranks_gather(p->r->ranks, mine, row, all);
    for (int k = 0; k < ranks && good; k++) {
        const eg_ring_block *b = part_blocks(y, k, &n, &positions);
        for (int j = 0; b && j < n; j++)
            part_copy(p, eg_dims(x), eg_rank(x), &b[j], positions, all + (size_t)k * row, y->data,
                      true);
        good = b != NULL;
    }
    eg_pop(y->cx, m);
    return good;
}
static bool ring_own_shape(eg_tensor *y)
{
    int n;
    int64_t positions;
    const eg_mark m = eg_push(y->cx);
    const bool good = part_blocks(y, eg_ranks_rank(part_attr(y)->r->ranks), &n, &positions) != NULL;
    eg_pop(y->cx, m);
    return good && part_shape(y, positions);
}
/* Copies the positions of this rank from the whole tensor, which every rank has. */
static bool ring_own_forward(eg_tensor *y)
{
    const part_of *p = part_attr(y);
    eg_tensor *x = eg_operand(y, 0);
    int n;
    int64_t positions;
    const eg_mark m = eg_push(y->cx);
    const eg_ring_block *b = part_blocks(y, eg_ranks_rank(p->r->ranks), &n, &positions);
    char *whole = b ? eg__alloc(y->cx, (size_t)eg_size(x) * sizeof(double) + 1) : NULL;
    eg_ring_walk w = { .r = p->r, .cx = y->cx, .width = p->r->dtype == EG_F64 ? 8 : 4 };
    if (whole) eg__ring_copy(&w, whole, x);
    for (int j = 0; whole && j < n; j++)
        part_copy(p, eg_dims(x), eg_rank(x), &b[j], positions, y->data, whole, false);
    eg_pop(y->cx, m);
    return whole != NULL;
}
static eg_tensor *ring_whole_rule(eg_tensor *y, eg_tensor *g, int i);
static eg_tensor *ring_own_rule(eg_tensor *y, eg_tensor *g, int i);
static const eg_op ring_whole_op = {
    .name = "the whole of a divided length",
    .equation = "y = sum P_r x_r, the positions of all ranks",
    .gradient = "the own positions of g",
    .arity = 1,
    .shape = ring_whole_shape,
    .forward = ring_whole_forward,
    .rule = ring_whole_rule,
};
static const eg_op ring_own_op = {
    .name = "the own positions of a divided length",
    .equation = "y = P_r^T x",
    .gradient = "the whole of g",
    .arity = 1,
    .shape = ring_own_shape,
    .forward = ring_own_forward,
    .rule = ring_own_rule,
};
static eg_tensor *ring_whole_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return eg__communicates(eg_apply(&ring_own_op, part_attr(y), sizeof(part_of), 1, &g));
}
static eg_tensor *ring_own_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return eg__ranks_apply(part_attr(y)->r->ranks, &ring_whole_op, part_attr(y), sizeof(part_of), 1,
                           &g);
}

/* -- the gradient by recorded operations ------------------------------------------------------ */
/* The whole tensors of a call: operands by EG_RING_…, and the cotangents of y and lse. */
typedef struct recorded {
    eg_ring_walk w;
    eg_tensor *x[EG_RING_OPERANDS];
    eg_tensor *g[2];
} recorded;
/* Returns ⟨y, g⟩ + ⟨lse, g_lse⟩ of attention over the whole length, recorded; NULL after an
 * error. */
static eg_tensor *recorded_objective(recorded *c)
{
    const eg_ring *r = c->w.r;
    eg_attention_args a = r->o;
    eg_tensor *lse;
    a.ranks = NULL, a.lse = &lse, a.offset_letter = r->query.letter;
    a.where = r->where ? r->where->text : NULL, a.score = r->score ? r->score->text : NULL;
    a.q = c->x[EG_RING_Q], a.k = c->x[EG_RING_K], a.v = c->x[EG_RING_V];
    a.keep.x = c->x[EG_RING_KEEP], a.bias.x = c->x[EG_RING_BIAS];
    a.lengths.x = c->x[EG_RING_LENGTHS];
    for (int k = 0; k < EG_GIVEN_MAX && a.with[k].name; k++) a.with[k].x = c->x[EG_RING_WITH + k];
    eg_tensor *y = eg_attention_with(&a);
    return eg_ok(y) ? eg_add(eg_sum(NULL, eg_mul(y, c->g[0])),
                             eg_sum(NULL, eg_mul(eg_maximum(lse, eg__ring_number(&c->w, -1e38)),
                                                 c->g[1])))
                    : NULL;
}

static eg_tensor *recorded_whole(const eg_ring *r, bool key, int axis, eg_tensor *x)
{
    const part_of p = { r, key, axis };
    return eg__ranks_apply(r->ranks, &ring_whole_op, &p, sizeof p, 1, &x);
}
static eg_tensor *recorded_own(const eg_ring *r, bool key, int axis, eg_tensor *x)
{
    const part_of p = { r, key, axis };
    return eg__communicates(eg_apply(&ring_own_op, &p, sizeof p, 1, &x));
}
/* True if operand k is divided among ranks. */
static bool recorded_divided(int k) { return k <= EG_RING_V; }

/* Computes the recorded gradients D = ∂F/∂x of F = ⟨y, g⟩ + ⟨lse, g_lse⟩, then differentiates S = Σ
 * ⟨h, D⟩ by x and g. If the context does not record, recording begins at copies of x and g. */
bool eg__ring_second(const eg_ring *r, eg_tensor *const *x, eg_tensor *const g[2],
                     eg_tensor *const *h, eg_tensor **dx, eg_tensor *dg[2])
{
    eg_ctx *cx = x[0]->cx;
    const bool recording = cx->recording;
    if (r->training && eg_option(r->o.dropout, 0) > 0) { /* a draw belongs to a pair of blocks,
                                                          * which the whole sequence does not
                                                          * have */
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "attention: .ranks: with .dropout there are gradients of the first order only");
        return false;
    }
    recorded c = { .w = { .r = r, .cx = cx, .width = r->dtype == EG_F64 ? 8 : 4 } };
    eg_tensor *by[EG_RING_OPERANDS + 2], *first[EG_RING_OPERANDS + 2], *last[EG_RING_OPERANDS + 2];
    int operand[EG_RING_OPERANDS], n = 0;
    for (int k = 0; k < EG_RING_OPERANDS; k++) {
        eg_tensor *own = x[k];
        if (own && recorded_divided(k)) own = recorded_whole(r, k > 0, r->axis[k], own);
        /* h may be a function of x, and this derivative must not continue through h: x gets a
         * separate node */
        c.x[k] = own && h[k] && (!recording || !recorded_divided(k)) ? eg_copy(own) : own;
        if (own && h[k]) operand[n] = k, by[n++] = c.x[k];
    }
    c.g[0] = recorded_whole(r, false, r->y_axis, g[0]);
    c.g[1] = recorded_whole(r, false, r->l_axis, g[1]);
    c.w.x = c.x;
    by[n] = c.g[0], by[n + 1] = c.g[1];
    cx->recording = true;
    eg_tensor *f = recorded_objective(&c), *s = eg__ring_number(&c.w, 0);
    bool good = f && !eg__grad(f, NULL, n, by, first);
    for (int k = 0; k < n && good; k++) {
        eg_tensor *to = h[operand[k]];
        if (recorded_divided(operand[k]))
            to = recorded_whole(r, operand[k] > 0, r->axis[operand[k]], to);
        s = eg_add(s, eg_sum(NULL, eg_mul(first[k], to)));
    }
    cx->recording = recording;
    good = !eg_ranks_barrier(r->ranks) && good && !eg__grad(s, NULL, n + 2, by, last);
    for (int k = 0; k < n && good; k++)
        dx[operand[k]] = recorded_divided(operand[k])
                             ? recorded_own(r, operand[k] > 0, r->axis[operand[k]], last[k])
                             : last[k];
    if (good) {
        dg[0] = recorded_own(r, false, r->y_axis, last[n]);
        dg[1] = recorded_own(r, false, r->l_axis, last[n + 1]);
    }
    return good && !eg_error(cx);
}
