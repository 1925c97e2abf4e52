/* tree.c: an einsum of three and more operands is computed along one tree of pairs, for its
 * value and all its gradients.
 *
 * While the context records, the results of the pairs are kept with the node (docs/design.md); they
 * are called the values of the tree. A cotangent g is propagated down the same tree: the cotangent
 * of a child is the product of its parent's cotangent and the other child's value. All cotangents
 * together thus take two products for each pair, however many operands there are. Values that were
 * not kept are computed again. If only some cotangents are wanted, the tree that is cheapest for
 * these is used (contraction/order.c). Tangents are propagated up the tree in the same way.
 *
 * A kept value is at first an array without a tensor. Where products are recorded, it becomes a
 * tensor, an einsum of the operands below it, so that gradients of every order exist; else pass.c
 * reads the array. All recorded passes use one such tensor, as if the value had been a tensor from
 * the beginning: otherwise its cotangent, a sum over these passes, would be divided among several
 * tensors, and be rounded in another way than in a captured step and for tensors with copies. For
 * the same reason its gradients have the tree that they have there. */
#include "einsum/tree.h"
#include <string.h>

typedef eg_network_pass pass;
static eg_network *network_of(const eg_tensor *y)
{
    eg_network *w = y->saved;
    return w && !w->call ? w : NULL;
}
bool eg__network_save(eg_tensor *y) { return eg__node_save(y, sizeof(eg_network)) != NULL; }

/* -- the value -------------------------------------------------------------------------------- */
/* Describes a step when only some values of the tree are tensors: its operands are the nearest such
 * values below it, and its pairs are those in between, renumbered. */
typedef struct frontier {
    int count, steps;
    int number[EG_EINSUM_MAX]; /* their numbers in the tree */
    int pair[EG_EINSUM_MAX][2];
} frontier;
/* Finds them: first the steps in between, then the operands that these read, then their pairs. */
static void find_frontier(frontier *f, const eg_tree *t, int step)
{
    bool pair = true;
    f->count = 2;
    f->steps = 1;
    for (int q = 0; q < 2; q++) {
        f->number[q] = q ? t->step[step].b : t->step[step].a;
        f->pair[0][q] = q;
        pair &= f->number[q] < t->count || t->kept >> (f->number[q] - t->count) & 1;
    }
    if (pair) return;
    bool inside[EG_EINSUM_MAX] = { false };
    int16_t here[2 * EG_EINSUM_MAX];
    f->count = f->steps = 0;
    inside[step] = true;
    for (int s = step; s >= 0; s--) {
        const int child[] = { t->step[s].a - t->count, t->step[s].b - t->count };
        for (int q = 0; q < 2 && inside[s]; q++)
            if (child[q] >= 0 && !(t->kept >> child[q] & 1)) inside[child[q]] = true;
    }
    for (int second = 0; second < 2; second++)
        for (int s = 0; s <= step; s++) {
            const int child[] = { t->step[s].a, t->step[s].b };
            if (!inside[s]) continue;
            for (int q = 0; q < 2; q++) {
                const bool made = child[q] >= t->count && inside[child[q] - t->count];
                if (second) f->pair[f->steps][q] = here[child[q]];
                if (second || made) continue;
                here[child[q]] = (int16_t)f->count;
                f->number[f->count++] = child[q];
            }
            if (second) here[t->count + s] = (int16_t)(f->count + f->steps++);
        }
}

/* Calls find_frontier, and sets in[] and of[] to the operands and their labels. value: by step, the
 * kept values below the step. */
static void frontier_of(frontier *f, const eg_tree *t, int s, eg_tensor *const *x,
                        const uint16_t *const *label, eg_tensor *const *value, eg_tensor **in,
                        const uint16_t **of)
{
    find_frontier(f, t, s);
    for (int k = 0; k < f->count; k++) {
        const int number = f->number[k], v = number - t->count;
        in[k] = v < 0 ? x[number] : value[v];
        of[k] = v < 0 ? label[number] : eg__tree_labels(t, v);
    }
}
/* The order of its pairs. */
static eg_order_args frontier_order(const frontier *f)
{
    return f->count == 2 ? eg__any_order
                         : (eg_order_args){ .keep_limit = EG_OFF,
                                            .steps = f->steps,
                                            .path = (const int(*)[2])f->pair,
                                            .numbered = true };
}
/* True if kept values can be arrays in one block of memory: all operands have one dtype, there are
 * no copies, and no step is being captured, which assigns addresses to results itself. */
static bool keeps_numbers(const eg_ctx *cx, int count, eg_tensor *const *x)
{
    bool good = !cx->capture;
    for (int k = 0; good && k < count; k++) good = !x[k]->copies && x[k]->dtype == x[0]->dtype;
    return good;
}
/* Returns the bytes of a kept value, rounded up to the alignment of the next one. The sum over all
 * values fits a size_t: kept_within (contraction/program.c) keeps less than 2^63 bytes. */
static size_t kept_bytes(const eg_tree *t, int s)
{
    return t->kept >> s & 1 ? ((size_t)t->step[s].bytes + EG_ALIGN - 1) & -(size_t)EG_ALIGN : 0;
}
/* Applies the call, whose program writes the values that the gradient will read to memory of the
 * node. Poison after an error. */
static eg_tensor *apply_keeping_numbers(eg_ctx *cx, const eg_op *op, const eg_call *c,
                                        const void *attr, size_t attr_size, int count,
                                        eg_tensor *const *x)
{
    const eg_tree *t = c->tree;
    const size_t at_tree = eg__up16(sizeof(eg_network)), at_kept = at_tree + t->bytes,
                 at_made = at_kept + eg__up16((size_t)t->steps * sizeof(void *)),
                 made_bytes = (size_t)t->steps * sizeof(eg__scoped),
                 at_values = (at_made + made_bytes + EG_ALIGN - 1) & -(size_t)EG_ALIGN;
    size_t bytes = at_values;
    for (int s = 0; s < t->steps; s++) bytes += kept_bytes(t, s);
    char *memory = eg__alloc(cx, bytes);
    if (!memory) return eg__poison(cx);
    char *value = memory + at_values;
    eg_network *w = (eg_network *)(void *)memory;
    eg_call made = *c;
    *w = (eg_network){ .tree = memcpy(memory + at_tree, t, t->bytes),
                       .kept = (void **)(void *)(memory + at_kept),
                       .made = memset(memory + at_made, 0, made_bytes),
                       .call = &made };
    for (int s = 0; s < t->steps; s++) {
        w->kept[s] = t->kept >> s & 1 ? value : NULL;
        value += kept_bytes(t, s);
    }
    made.kept = w->kept;
    eg_tensor *y = eg__apply(cx, op, attr, attr_size, w, count, x);
    w->call = NULL;
    return y;
}
/* As apply_keeping_numbers, with values that are tensors. The call is copied first, since planning
 * may evict it. */
static eg_tensor *apply_keeping_tensors(eg_ctx *cx, const eg_op *op, const eg_call *c,
                                        const void *attr, size_t attr_size, int count,
                                        eg_tensor *const *x)
{
    const uint16_t *label[EG_EINSUM_MAX], *of[EG_EINSUM_MAX];
    eg_tensor *in[EG_EINSUM_MAX];
    const int steps = c->tree->steps, rank = c->rank;
    const size_t at_tree = eg__up16(sizeof(eg_network)), at_value = at_tree + c->tree->bytes,
                 at_dim = at_value + eg__up16((size_t)steps * sizeof *in),
                 at_attr = at_dim + eg__up16(2 * (size_t)rank * sizeof(int64_t));
    char *memory = eg__alloc(cx, at_attr + attr_size);
    if (!memory) return eg__poison(cx);
    eg_network *w = (eg_network *)(void *)memory;
    *w = (eg_network){ .tree = memcpy(memory + at_tree, c->tree, c->tree->bytes),
                       .value = memset(memory + at_value, 0, (size_t)steps * sizeof *in) };
    int64_t *dim = (int64_t *)(void *)(memory + at_dim), *stride = dim + rank;
    if (rank) memcpy(dim, c->dim, (size_t)rank * sizeof *dim);
    if (rank) memcpy(stride, c->stride, (size_t)rank * sizeof *dim);
    attr = memcpy(memory + at_attr, attr, attr_size);
    const eg_tree *t = w->tree;
    const uint16_t *out = eg__einsum_attr_labels(attr);
    for (int k = 0; k < count; out += x[k++]->rank) label[k] = out;
    for (int s = 0; s < steps; s++) {
        const bool root = s == steps - 1;
        frontier f;
        if (!root && !(t->kept >> s & 1)) continue;
        frontier_of(&f, t, s, x, label, w->value, in, of);
        const eg_order_args how = frontier_order(&f);
        if (!root) {
            w->value[s] = eg__einsum_keyed(NULL, &how, 1, f.count, in, of, t->step[s].rank,
                                           eg__tree_labels(t, s));
            if (!eg_ok(w->value[s])) return eg__poison(cx);
            continue;
        }
        const eg_labelled to = { rank, dim, stride, out };
        const eg_call made = { .dtype = eg__einsum_type(count, x),
                               .rank = rank,
                               .dim = dim,
                               .stride = stride,
                               .program = eg__einsum_program(cx, f.count, in, of, &to, &how),
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
eg_tensor *eg__network_apply(eg_ctx *cx, const eg_op *op, const eg_call *c, const void *attr,
                             size_t attr_size, int count, eg_tensor *const *x)
{
    return (keeps_numbers(cx, count, x) ? apply_keeping_numbers : apply_keeping_tensors)(
        cx, op, c, attr, attr_size, count, x);
}

/* -- kept values ------------------------------------------------------------------------------ */
void eg__network_sizes(const eg_tensor *y, const uint16_t *const *of, int rank,
                       const uint16_t *label, int64_t *dim)
{
    for (int r = 0; r < rank; r++)
        for (int k = 0, at = -1; at < 0 && k < y->count; k++) {
            at = eg__label_at(of[k], y->in[k]->rank, label[r]);
            if (at >= 0) dim[r] = y->in[k]->dim[at];
        }
}
int eg__network_kept(const eg_network *w, const eg_tree *t, int s)
{
    const eg_tree *had = w ? w->tree : NULL;
    if (!had || s == t->steps - 1) return -1;
    if (t == had) return t->kept >> s & 1 ? s : -1;
    for (int v = 0; v < had->steps - 1; v++)
        if (had->kept >> v & 1 && had->step[v].operands == t->step[s].operands) return v;
    return -1;
}
/* Returns the value that step v of the node's tree kept, as a tensor: an einsum of the values below
 * it, which become tensors first. Poison after an error. */
static eg_tensor *kept_value(pass *p, int v)
{
    const eg_network *w = network_of(p->y);
    eg_ctx *cx = p->y->cx;
    const eg_tree *t = w->tree;
    const uint16_t *of[EG_EINSUM_MAX];
    eg_tensor *in[EG_EINSUM_MAX];
    for (; w->kept && p->made <= v; p->made++) {
        const int s = p->made;
        const uint16_t *label = eg__tree_labels(t, s);
        int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX];
        frontier f;
        if (!w->kept[s]) continue;
        if (cx->recording && (p->value[s] = eg__scoped_tensor(cx, &w->made[s]))) continue;
        frontier_of(&f, t, s, p->y->in, p->label, p->value, in, of);
        eg__network_sizes(p->y, p->label, t->step[s].rank, label, dim);
        eg__row_major(t->step[s].rank, dim, stride);
        const eg_call c = { .dtype = eg__einsum_type(f.count, in),
                            .rank = t->step[s].rank,
                            .dim = dim,
                            .stride = stride,
                            .data = w->kept[s] };
        const eg_order_args how = frontier_order(&f);
        p->value[s] = eg__einsum_given(&c, &how, f.count, in, of, label);
        if (!eg_ok(p->value[s])) return eg__poison(cx);
        if (cx->recording) w->made[s] = eg__scoped_of(p->value[s]);
    }
    return p->value[v];
}

/* -- the tree of a backward or forward pass ---------------------------------------------------- */
/* Plans the tree and stores it in the cache. NULL after an error. */
static const eg_tree *network_planned_tree(const eg_tensor *y, const eg_network *w, uint64_t wanted)
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
    if (had)
        eg__key_put(&text, sizeof had->number, &had->number);
    else
        eg__key_put(&text, y->attr_size, y->attr);
    const eg_plan_key key = { EG_KEY_TREE, had ? 0 : y->count, text.length, text.text, y->in };
    const eg_tree *found = text.fits ? eg__plans_find(cx, &key) : NULL;
    if (found) return found;
    for (int k = 0; k < y->count; k++) label[k] = eg__einsum_labels_of(y, k);
    for (int s = 0; had && s < had->steps; s++) {
        pair[s][0] = had->step[s].a;
        pair[s][1] = had->step[s].b;
    }
    const eg_labelled out = { y->rank, y->dim, y->stride, eg__einsum_labels_of(y, y->count) };
    eg_planning *p = eg__planning(cx);
    for (int given = had ? 1 : 0; given < 2; given++) {
        if (given)
            order = (eg_order_args){ .limit = order.limit,
                                     .keep_limit = EG_OFF,
                                     .steps = y->count - 1,
                                     .path = (const int(*)[2])pair,
                                     .numbered = true };
        if (!p || !eg__einsum_drafted(cx, p, y->count, y->in, label, &out, &order)) return NULL;
        memcpy(pair, p->draft.pair, sizeof pair);
    }
    if (!had) {
        void *memory = eg__alloc(cx, eg__tree_bytes(&p->draft));
        if (!memory) return NULL;
        had = eg__tree(memory, &p->draft);
    }
    if (eg__tree_cotangents(cx, had, &p->draft, wanted, pair) < 0) return NULL;
    if (!eg__einsum_drafted(cx, p, y->count, y->in, label, &out, &order)) return NULL;
    const size_t bytes = eg__tree_bytes(&p->draft);
    void *memory = text.fits ? eg__plans_add(cx, &key, bytes) : NULL;
    if (!memory) memory = eg__alloc(cx, bytes);
    return memory ? eg__tree(memory, &p->draft) : NULL;
}
const eg_tree *eg__network_tree(const eg_tensor *y, const eg_network *w, uint64_t wanted)
{
    const int n = y->count;
    const uint64_t all = ~(uint64_t)0 >> (64 - n), inner = ~(uint64_t)0 >> (64 - n + 2);
    /* if all values are kept, the tree that is best for the value is best for all cotangents */
    const bool same =
        w && w->tree && w->tree->searched && wanted == all && (w->tree->kept & inner) == inner;
    return same ? w->tree : network_planned_tree(y, w, wanted);
}
/* Begins a pass for the wanted cotangents or, with g NULL, for tangents, where only the wanted
 * operands have one. Its arrays are in the open scope. False after an error. */
static bool network_begin(pass *p, eg_tensor *y, eg_tensor *g, uint64_t wanted)
{
    const eg_network *w = network_of(y);
    const int n = y->count, numbers = 2 * n - 1, steps = n - 1;
    const eg_tree *t = eg__network_tree(y, w, wanted);
    if (!t) return false;
    const bool same = w && t == w->tree;
    const size_t bytes = same ? 0 : t->bytes,
                 pointers = (size_t)(3 * numbers + steps) * sizeof *p->up;
    char *memory =
        eg__alloc(y->cx, pointers + bytes + (size_t)(2 * numbers + steps) * sizeof *p->parent);
    if (!memory) return false;
    memset(memory, 0, pointers);
    *p = (pass){ .y = y,
                 .g = g,
                 .tree = same ? t : memcpy(memory + pointers, t, bytes),
                 .up = (eg_tensor **)(void *)memory,
                 .down = (eg_tensor **)(void *)memory + numbers,
                 .label = (const uint16_t **)(void *)memory + 2 * numbers,
                 .value = (eg_tensor **)(void *)memory + 3 * numbers,
                 .parent = (int16_t *)(void *)(memory + pointers + bytes) };
    p->sibling = p->parent + numbers;
    p->kept = p->sibling + numbers;
    t = p->tree;
    /* a captured step does not read arrays that belong to no tensor */
    const bool read = w && (w->value || (w->kept && !eg__capturing(y->cx)));
    if (w && w->value) memcpy(p->value, w->value, (size_t)steps * sizeof *p->value);
    for (int s = 0; s < steps; s++) {
        const eg_tree_step *q = &t->step[s];
        p->parent[q->a] = p->parent[q->b] = (int16_t)s;
        p->sibling[q->a] = q->b;
        p->sibling[q->b] = q->a;
        p->kept[s] = (int16_t)(read ? eg__network_kept(w, t, s) : -1);
    }
    for (int k = 0; k < n; k++) {
        p->up[k] = y->in[k];
        p->label[k] = eg__einsum_labels_of(y, k);
    }
    return true;
}

/* -- down and up the tree --------------------------------------------------------------------- */
/* Returns alpha times the product of a and b, with the labels of step s's result. */
static eg_tensor *network_product(const pass *p, int s, double alpha, eg_tensor *a,
                                  const uint16_t *la, eg_tensor *b, const uint16_t *lb)
{
    return eg__einsum_keyed(NULL, &eg__any_order, alpha, 2, (eg_tensor *[]){ a, b },
                            (const uint16_t *[]){ la, lb }, p->tree->step[s].rank,
                            eg__tree_labels(p->tree, s));
}
/* Returns the value of an operand or step: an operand, a kept value, or one that is computed
 * again. */
static eg_tensor *network_value(pass *p, int number)
{
    const int s = number - p->y->count;
    if (p->up[number]) return p->up[number];
    const int a = p->tree->step[s].a, b = p->tree->step[s].b, kept = p->kept[s];
    p->label[number] =
        eg__tree_labels(kept < 0 ? p->tree : network_of(p->y)->tree, kept < 0 ? s : kept);
    if (kept >= 0) return p->up[number] = kept_value(p, kept);
    eg_tensor *x = network_value(p, a), *z = network_value(p, b);
    return p->up[number] = network_product(p, s, 1, x, p->label[a], z, p->label[b]);
}
/* Sets in[] and label[] to the two factors of the cotangent of an operand or step: its parent's
 * cotangent and the other child's value. Returns the factor of their product: the einsum's alpha
 * where the parent is the result, else 1. */
static double network_factors(pass *p, int number, eg_tensor **in, const uint16_t **label)
{
    const int s = p->parent[number], parent = p->y->count + s, other = p->sibling[number];
    const bool root = s == p->tree->steps - 1;
    if (root) {
        in[0] = p->g;
        label[0] = eg__einsum_labels_of(p->y, p->y->count);
    } else {
        label[0] = eg__tree_labels(p->tree, s);
        if (!p->down[parent]) {
            const double alpha = network_factors(p, parent, in, label);
            p->down[parent] = network_product(p, s, alpha, in[0], label[0], in[1], label[1]);
            label[0] = eg__tree_labels(p->tree, s);
        }
        in[0] = p->down[parent];
    }
    in[1] = network_value(p, other);
    label[1] = p->label[other];
    return root ? eg__einsum_alpha(p->y) : 1;
}

/* Returns the operands (bit set) whose cotangents the current backward pass needs, by its marks. */
static uint64_t network_wanted(const eg_tensor *y, int i)
{
    uint64_t wanted = (uint64_t)1 << i;
    for (int k = 0; k < y->count && y->cx->pull; k++)
        if (y->in[k]->sweep == y->cx->sweep && y->in[k]->slot >= 0) wanted |= (uint64_t)1 << k;
    return wanted;
}
/* Computes the wanted cotangents at once if possible, else begins a pass for them. False after an
 * error. */
static bool network_start(pass *p, eg_tensor *y, const eg_network *w, eg_tensor *g, uint64_t wanted)
{
    eg_tensor *dx[EG_EINSUM_MAX] = { NULL };
    const size_t bytes = (size_t)y->count * sizeof *dx;
    if (!eg__network_at_once(y, w, g, wanted, dx))
        return !y->cx->failed && network_begin(p, y, g, wanted);
    *p = (pass){ .y = y, .g = g, .dx = eg__alloc(y->cx, bytes) };
    return p->dx && memcpy(p->dx, dx, bytes);
}
/* The first call in a visit of the node computes or prepares the cotangents of all operands that
 * the backward pass needs; the other calls of the same visit (eg_ctx.pull) use them. */
eg_tensor *eg__network_cotangent(eg_tensor *y, eg_tensor *g, int i)
{
    eg_network *w = network_of(y);
    pass here = { 0 }, *p = w ? &w->pass : &here;
    const uint64_t pull = y->cx->pull;
    eg_tensor *in[2];
    const uint16_t *label[2];
    if (pull && p->pull == pull && p->g == g && p->dx && p->dx[i]) return p->dx[i];
    if (!eg__check_all(y->cx, "einsum", 1, &g)) return eg__poison(y->cx);
    if (!pull || p->pull != pull || p->g != g || (p->dx && !p->dx[i])) {
        if (!network_start(p, y, w, g, network_wanted(y, i))) return eg__poison(y->cx);
        p->pull = pull;
    }
    if (p->dx) return p->dx[i];
    const double alpha = network_factors(p, i, in, label);
    return eg__einsum_cotangent(y, i, alpha, in, label);
}

/* Returns the tangent of an operand or step from those of its children; NULL if neither has one. */
static eg_tensor *network_tangent(pass *p, int number, eg_tensor *const *dx)
{
    const int s = number - p->y->count;
    if (s < 0) return dx[number];
    const int child[2] = { p->tree->step[s].a, p->tree->step[s].b };
    const bool root = s == p->tree->steps - 1;
    const uint16_t *out =
        root ? eg__einsum_labels_of(p->y, p->y->count) : eg__tree_labels(p->tree, s);
    eg_tensor *sum = NULL;
    for (int q = 0; q < 2; q++) {
        eg_tensor *d = network_tangent(p, child[q], dx);
        if (!d) continue;
        eg_tensor *in[2] = { d, d };
        const uint16_t *label[2];
        for (int k = 0; k < 2; k++) {
            if (k != q) in[k] = network_value(p, child[k]);
            label[k] = k == q && child[k] >= p->y->count
                           ? eg__tree_labels(p->tree, child[k] - p->y->count)
                           : p->label[child[k]];
        }
        eg_tensor *part =
            eg__einsum_keyed(NULL, &eg__any_order, root ? eg__einsum_alpha(p->y) : 1, 2, in, label,
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
    return network_begin(&p, y, NULL, moved) ? network_tangent(&p, 2 * y->count - 2, dx)
                                             : eg__poison(y->cx);
}

/* -- its cost ---------------------------------------------------------------------------------- */
/* The multiply-adds are those of the tree by which the node was made, if it is known; the values
 * that it keeps are added to the bytes. */
void eg__network_cost(const eg_tensor *y, int count, const uint16_t *const *label,
                      const eg_labelled *out, eg_op_cost *cost)
{
    const eg_network *w = count > 2 ? network_of(y) : NULL;
    const eg_tree *t = w ? w->tree : NULL;
    int pair[EG_EINSUM_MAX][2];
    eg_order_args order = { .steps = -1 };
    eg_planning *p = eg__planning(y->cx);
    if (t)
        order =
            (eg_order_args){ .steps = t->steps, .path = (const int(*)[2])pair, .numbered = true };
    for (int s = 0; t && s < t->steps; s++) {
        pair[s][0] = t->step[s].a;
        pair[s][1] = t->step[s].b;
        if (t->kept >> s & 1 && s < t->steps - 1) cost->bytes += (double)t->step[s].bytes;
    }
    if (!p || !eg__einsum_drafted(y->cx, p, count, y->in, label, out, &order)) return;
    for (int s = 0; s < p->draft.steps; s++)
        cost->multiply_adds += eg__draft_work(&p->draft, s, NULL);
}
