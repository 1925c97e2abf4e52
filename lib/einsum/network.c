/* network.c: an einsum of three and more operands: one tree of pairs for its value and all its
 * gradients.
 *
 * While the context records, the results of the pairs are kept beside the node (docs/design.md):
 * the values of the tree, each a recorded einsum of the operands below it. A cotangent g goes down
 * the same tree: the cotangent of a child is a product of its parent's cotangent and of the other
 * child's value. So all cotangents cost two products for each pair, however many operands there
 * are. Values that were not kept are computed again. If only some cotangents are wanted, the tree
 * that is cheapest for them is used (contraction/order.c). Tangents go up the tree in the same
 * way. */
#include "einsum/einsum.h"
#include <string.h>

/* One cotangent on its way down the tree, or tangents on their way up. */
typedef struct pass {
    eg_tensor *y, *g;
    uint64_t pull; /* eg_ctx.pull when the rest was computed; 0: outside of sweeps */
    const eg_tree *tree;
    int16_t *parent, *sibling; /* by number: the step that reads it; the other number it reads */
    eg_tensor **up, **down;    /* by number: value and cotangent; NULL: not computed yet */
    const uint16_t **label;    /* by number: labels of the value; NULL: it has none */
} pass;
/* What is saved beside a node. */
typedef struct network {
    const eg_call *call; /* while the node is being made, for eg__call_saved; NULL afterwards */
    eg_tree *tree;       /* by which the node was made; NULL: not known, nothing is kept */
    eg_tensor **value;   /* by step; NULL: not kept */
    pass pass;
} network;
static network *network_of(const eg_tensor *y)
{
    network *w = y->saved;
    return w && !w->call ? w : NULL;
}
bool eg__network_save(eg_tensor *y) { return eg_node_save(y, sizeof(network)) != NULL; }

/* -- the value -------------------------------------------------------------------------------- */
/* The operands and pairs of a step when only some values of the tree are tensors: the nearest such
 * values below the step, and the pairs in between, in numbers of their own. */
typedef struct frontier {
    int count, steps;
    int number[EG_EINSUM_MAX]; /* in the tree */
    int pair[EG_EINSUM_MAX][2];
} frontier;
/* Finds them: first the steps in between, then the numbers that these read, then their pairs. */
static void find_frontier(frontier *f, const eg_tree *t, int step)
{
    bool inside[EG_EINSUM_MAX] = { false };
    int16_t here[2 * EG_EINSUM_MAX];
    f->count = f->steps = 0;
    inside[step] = true;
    for (int s = step; s >= 0; s--) {
        const int child[] = { t->step[s].a - t->count, t->step[s].b - t->count };
        for (int q = 0; q < 2 && inside[s]; q++)
            if (child[q] >= 0 && !(t->kept >> child[q] & 1)) inside[child[q]] = true;
    }
    for (int turn = 0; turn < 2; turn++)
        for (int s = 0; s <= step; s++) {
            const int child[] = { t->step[s].a, t->step[s].b };
            if (!inside[s]) continue;
            for (int q = 0; q < 2; q++) {
                const bool made = child[q] >= t->count && inside[child[q] - t->count];
                if (turn) f->pair[f->steps][q] = here[child[q]];
                if (turn || made) continue;
                here[child[q]] = (int16_t)f->count;
                f->number[f->count++] = child[q];
            }
            if (turn) here[t->count + s] = (int16_t)(f->count + f->steps++);
        }
}

/* Applies the call and keeps the values that its gradient will read. The call is copied first,
 * since planning may evict it. Poison after an error. */
eg_tensor *eg__network_apply(eg_ctx *cx, const eg_op *op, const eg_call *c, const void *attr,
                             size_t attr_size, int count, eg_tensor *const *x)
{
    const uint16_t *label[2 * EG_EINSUM_MAX], *of[EG_EINSUM_MAX];
    eg_tensor *value[2 * EG_EINSUM_MAX], *in[EG_EINSUM_MAX];
    const int steps = c->tree->steps, rank = c->rank;
    const size_t at_tree = eg__up16(sizeof(network)), at_value = at_tree + c->tree->bytes,
                 at_dim = at_value + eg__up16((size_t)steps * sizeof *value),
                 at_attr = at_dim + eg__up16(2 * (size_t)rank * sizeof(int64_t));
    char *room = eg__alloc(cx, at_attr + attr_size);
    if (!room) return eg__poison(cx);
    network *w = (network *)(void *)room;
    *w = (network){ .tree = memcpy(room + at_tree, c->tree, c->tree->bytes),
                    .value = memset(room + at_value, 0, (size_t)steps * sizeof *value) };
    int64_t *dim = (int64_t *)(void *)(room + at_dim), *stride = dim + rank;
    if (rank) memcpy(dim, c->dim, (size_t)rank * sizeof *dim);
    if (rank) memcpy(stride, c->stride, (size_t)rank * sizeof *dim);
    attr = memcpy(room + at_attr, attr, attr_size);
    const eg_tree *t = w->tree;
    const uint16_t *out = eg__einsum_attr_labels(attr);
    for (int k = 0; k < count; out += x[k++]->rank) {
        value[k] = x[k];
        label[k] = out;
    }
    for (int s = 0; s < steps; s++) {
        const bool root = s == steps - 1;
        frontier f;
        if (!root && !(t->kept >> s & 1)) continue;
        find_frontier(&f, t, s);
        for (int k = 0; k < f.count; k++) {
            in[k] = value[f.number[k]];
            of[k] = label[f.number[k]];
        }
        const eg_order_args pairs = { .keep_limit = EG_OFF,
                                      .steps = f.steps,
                                      .path = (const int(*)[2])f.pair,
                                      .numbered = true };
        const eg_order_args *how = f.count == 2 ? &eg__any_order : &pairs;
        if (!root) {
            label[count + s] = eg__tree_labels(t, s);
            value[count + s] = w->value[s] =
                eg__einsum_limited(how, 1, f.count, in, of, t->step[s].rank, label[count + s]);
            if (!eg_ok(w->value[s])) return eg__poison(cx);
            continue;
        }
        const eg_labelled to = { rank, dim, stride, out };
        const eg_call made = { .rank = rank,
                               .dim = dim,
                               .stride = stride,
                               .program = eg__einsum_program(cx, f.count, in, of, &to, how),
                               .count = f.count,
                               .x = in };
        if (!made.program) return eg__poison(cx);
        w->call = &made;
        eg_tensor *y = eg__apply(cx, op, attr, attr_size, w, count, x);
        w->call = NULL;
        return y;
    }
    return eg__poison(cx);
}

/* -- the tree of a pass ----------------------------------------------------------------------- */
/* Plans the tree that gives the wanted cotangents for the fewest multiply-adds, and remembers it.
 * NULL after an error. */
static const eg_tree *planned(const eg_tensor *y, const network *w, uint64_t wanted)
{
    const eg_tree *had = w ? w->tree : NULL;
    eg_ctx *cx = y->cx;
    const uint16_t *label[EG_EINSUM_MAX];
    int pair[EG_EINSUM_MAX][2];
    eg_key_text text;
    eg_order_args order = { .limit = eg__einsum_limit(y), .steps = -1 };
    text.length = 0;
    text.fits = true;
    eg__key_put(&text, sizeof wanted, &wanted);
    eg__key_put(&text, y->attr_size, y->attr);
    if (had) eg__key_put(&text, had->bytes, had);
    const eg_plan_key key = { EG_KEY_TREE, y->count, text.length, text.text, y->in };
    const eg_tree *found = text.fits ? eg__plans_find(cx, &key) : NULL;
    if (found) return found;
    for (int k = 0; k < y->count; k++) label[k] = eg__einsum_labels_of(y, k);
    for (int s = 0; had && s < had->steps; s++) {
        pair[s][0] = had->step[s].a;
        pair[s][1] = had->step[s].b;
    }
    const eg_labelled out = { y->rank, y->dim, y->stride, eg__einsum_labels_of(y, y->count) };
    eg_planning p;
    for (int turn = had ? 1 : 0; turn < 2; turn++) {
        if (turn)
            order = (eg_order_args){ .limit = order.limit,
                                     .keep_limit = EG_OFF,
                                     .steps = y->count - 1,
                                     .path = (const int(*)[2])pair,
                                     .numbered = true };
        if (!eg__einsum_drafted(cx, &p, y->count, y->in, label, &out, &order)) return NULL;
        memcpy(pair, p.draft.pair, sizeof pair);
    }
    if (!had) {
        void *room = eg__alloc(cx, eg__tree_bytes(&p.draft));
        if (!room) return NULL;
        had = eg__tree(room, &p.draft);
    }
    eg__tree_cotangents(had, &p.draft, wanted, pair);
    if (!eg__einsum_drafted(cx, &p, y->count, y->in, label, &out, &order)) return NULL;
    const size_t bytes = eg__tree_bytes(&p.draft);
    void *room = text.fits ? eg__plans_add(cx, &key, bytes) : NULL;
    if (!room) room = eg__alloc(cx, bytes);
    return room ? eg__tree(room, &p.draft) : NULL;
}
/* Begins a pass for the wanted cotangents; with g NULL for tangents that only the wanted operands
 * have. Its arrays are in the open scope. False after an error. */
static bool begin(pass *p, eg_tensor *y, eg_tensor *g, uint64_t wanted)
{
    const network *w = network_of(y);
    const int n = y->count, numbers = 2 * n - 1;
    const uint64_t all = ~(uint64_t)0 >> (64 - n), inner = ~(uint64_t)0 >> (64 - n + 2);
    /* if all values are kept, the tree that is best for the value is best for all cotangents */
    const bool same =
        w && w->tree && w->tree->searched && wanted == all && (w->tree->kept & inner) == inner;
    const eg_tree *t = same ? w->tree : planned(y, w, wanted);
    if (!t) return false;
    const size_t bytes = same ? 0 : t->bytes, pointers = (size_t)numbers * 3 * sizeof *p->up;
    char *room = eg__alloc(y->cx, pointers + bytes + (size_t)numbers * 2 * sizeof *p->parent);
    if (!room) return false;
    memset(room, 0, pointers);
    *p = (pass){ .y = y,
                 .g = g,
                 .tree = same ? t : memcpy(room + pointers, t, bytes),
                 .up = (eg_tensor **)(void *)room,
                 .down = (eg_tensor **)(void *)room + numbers,
                 .label = (const uint16_t **)(void *)room + 2 * numbers,
                 .parent = (int16_t *)(void *)(room + pointers + bytes) };
    p->sibling = p->parent + numbers;
    t = p->tree;
    for (int s = 0; s < t->steps; s++) {
        const eg_tree_step *q = &t->step[s];
        p->parent[q->a] = p->parent[q->b] = (int16_t)s;
        p->sibling[q->a] = q->b;
        p->sibling[q->b] = q->a;
        for (int v = 0; w && w->tree && v < w->tree->steps; v++)
            if (w->value[v] && w->tree->step[v].operands == q->operands) {
                p->up[n + s] = w->value[v];
                p->label[n + s] = eg__tree_labels(w->tree, v);
            }
    }
    for (int k = 0; k < n; k++) {
        p->up[k] = y->in[k];
        p->label[k] = eg__einsum_labels_of(y, k);
    }
    return true;
}

/* -- down and up the tree --------------------------------------------------------------------- */
/* Returns alpha times the product of a and b, with the labels of step s's result. */
static eg_tensor *one_pair(const pass *p, int s, double alpha, eg_tensor *a, const uint16_t *la,
                           eg_tensor *b, const uint16_t *lb)
{
    return eg__einsum_limited(&eg__any_order, alpha, 2, (eg_tensor *[]){ a, b },
                              (const uint16_t *[]){ la, lb }, p->tree->step[s].rank,
                              eg__tree_labels(p->tree, s));
}
/* Returns the value of a number of the tree: an operand, a kept value, or one that is computed
 * again. */
static eg_tensor *value_of(pass *p, int number)
{
    const int s = number - p->y->count;
    if (p->up[number]) return p->up[number];
    const int a = p->tree->step[s].a, b = p->tree->step[s].b;
    eg_tensor *x = value_of(p, a), *z = value_of(p, b);
    p->label[number] = eg__tree_labels(p->tree, s);
    return p->up[number] = one_pair(p, s, 1, x, p->label[a], z, p->label[b]);
}
/* Sets in[] and label[] to the two factors of a number's cotangent: its parent's cotangent and the
 * other child's value. Returns what their product is multiplied by: the einsum's factor where the
 * parent is the result. */
static double factors(pass *p, int number, eg_tensor **in, const uint16_t **label)
{
    const int s = p->parent[number], parent = p->y->count + s, other = p->sibling[number];
    const bool root = s == p->tree->steps - 1;
    if (root) {
        in[0] = p->g;
        label[0] = eg__einsum_labels_of(p->y, p->y->count);
    } else {
        label[0] = eg__tree_labels(p->tree, s);
        if (!p->down[parent]) {
            const double alpha = factors(p, parent, in, label);
            p->down[parent] = one_pair(p, s, alpha, in[0], label[0], in[1], label[1]);
            label[0] = eg__tree_labels(p->tree, s);
        }
        in[0] = p->down[parent];
    }
    in[1] = value_of(p, other);
    label[1] = p->label[other];
    return root ? eg__einsum_alpha(p->y) : 1;
}

/* Returns the operands (bit set) whose cotangents the running sweep wants, by its marks. */
static uint64_t asked_for(const eg_tensor *y, int i)
{
    uint64_t wanted = (uint64_t)1 << i;
    for (int k = 0; k < y->count && y->cx->pull; k++)
        if (y->in[k]->sweep == y->cx->sweep && y->in[k]->slot >= 0) wanted |= (uint64_t)1 << k;
    return wanted;
}
eg_tensor *eg__network_cotangent(eg_tensor *y, eg_tensor *g, int i)
{
    network *w = network_of(y);
    pass here = { 0 }, *p = w ? &w->pass : &here;
    const uint64_t pull = y->cx->pull;
    eg_tensor *in[2];
    const uint16_t *label[2];
    if (!eg__check_all(y->cx, "einsum", 1, &g)) return eg__poison(y->cx);
    if (!pull || p->pull != pull || p->g != g) {
        if (!begin(p, y, g, asked_for(y, i))) return eg__poison(y->cx);
        p->pull = pull;
    }
    const double alpha = factors(p, i, in, label);
    return eg__einsum_cotangent(y, i, alpha, in, label);
}

/* Returns the tangent of a number from those of its children; NULL if neither has one. */
static eg_tensor *tangent_of(pass *p, int number, eg_tensor *const *dx)
{
    const int s = number - p->y->count;
    if (s < 0) return dx[number];
    const int child[2] = { p->tree->step[s].a, p->tree->step[s].b };
    const bool root = s == p->tree->steps - 1;
    const uint16_t *out =
        root ? eg__einsum_labels_of(p->y, p->y->count) : eg__tree_labels(p->tree, s);
    eg_tensor *sum = NULL;
    for (int q = 0; q < 2; q++) {
        eg_tensor *d = tangent_of(p, child[q], dx);
        if (!d) continue;
        eg_tensor *in[2] = { d, d };
        const uint16_t *label[2];
        for (int k = 0; k < 2; k++) {
            if (k != q) in[k] = value_of(p, child[k]);
            label[k] = k == q && child[k] >= p->y->count
                           ? eg__tree_labels(p->tree, child[k] - p->y->count)
                           : p->label[child[k]];
        }
        eg_tensor *part =
            eg__einsum_limited(&eg__any_order, root ? eg__einsum_alpha(p->y) : 1, 2, in, label,
                               root ? p->y->rank : p->tree->step[s].rank, out);
        sum = sum ? eg__add(sum, part) : part;
    }
    return sum;
}
eg_tensor *eg__network_tangent(eg_tensor *y, eg_tensor *const *dx)
{
    pass p;
    uint64_t moved = 0;
    for (int k = 0; k < y->count; k++)
        if (dx[k]) moved |= (uint64_t)1 << k;
    return begin(&p, y, NULL, moved) ? tangent_of(&p, 2 * y->count - 2, dx) : eg__poison(y->cx);
}

/* -- its cost ---------------------------------------------------------------------------------- */
void eg__network_cost(const eg_tensor *y, int count, const uint16_t *const *label,
                      const eg_labelled *out, eg_op_cost *cost)
{
    const network *w = count > 2 ? network_of(y) : NULL;
    const eg_tree *t = w ? w->tree : NULL;
    int pair[EG_EINSUM_MAX][2];
    eg_order_args order = { .steps = -1 };
    eg_planning p;
    if (t)
        order =
            (eg_order_args){ .steps = t->steps, .path = (const int(*)[2])pair, .numbered = true };
    for (int s = 0; t && s < t->steps; s++) {
        pair[s][0] = t->step[s].a;
        pair[s][1] = t->step[s].b;
        if (t->kept >> s & 1 && s < t->steps - 1) cost->bytes += (double)t->step[s].bytes;
    }
    if (!eg__einsum_drafted(y->cx, &p, count, y->in, label, out, &order)) return;
    for (int s = 0; s < p.draft.steps; s++) cost->multiply_adds += eg__draft_work(&p.draft, s);
}
