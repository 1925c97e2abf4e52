/* pass.c: all cotangents of an einsum of three or more operands at once, while nothing is recorded.
 *
 * The products of such a backward pass depend only on the tree, on the wanted cotangents and on the
 * strides of g. They are planned once and stored in the cache of plans under that short key, as one
 * list of programs. A run makes a tensor for each wanted cotangent; the cotangents in between are
 * arrays in one block of memory, in which those that are no longer needed are overwritten.
 * tree.c computes the same products one by one as recorded einsums, with the same bits. */
#include "einsum/tree.h"
#include <string.h>

/* Operands and values have the numbers of the tree; the cotangent of number k has number
 * number_down(n, k). */
enum { NUMBERS = 2 * EG_EINSUM_MAX, PRODUCTS = 3 * EG_EINSUM_MAX };
static int number_down(int n, int number) { return 2 * n - 1 + number; }

/* One product: number `to` from numbers a and b. */
typedef struct product {
    int16_t a, b, to;
    bool result;     /* true: the cotangent of an operand, a tensor; false: an array in between */
    int64_t *stride; /* strides of a tensor */
    int64_t at;      /* offset of an array in the block of memory, in bytes */
    int64_t bytes;   /* bytes of number `to` */
    const eg_program *program; /* a program of one step, … */
    const eg_pairing *pairing; /* … and that step */
} product;
/* A planned pass. */
typedef struct plan {
    int products;       /* 0: this pass cannot be computed at once */
    size_t block_bytes; /* bytes of the block of memory */
    /* by step of this pass' tree: the step of the node's tree that kept its value, or −1 */
    int16_t *kept;
    product product[];
} plan;

/* -- planning ---------------------------------------------------------------------------------- */
/* A plan that is being made. x[] are headers without elements, except those of operands and g. */
typedef struct planning {
    eg_tensor *y;
    const eg_tree *t;
    const eg_tree *of_node; /* the tree of the node, whose labels kept values have */
    uint64_t wanted;
    int steps;
    eg_tensor *x[2 * NUMBERS]; /* by number; NULL: not made yet */
    const uint16_t *label[2 * NUMBERS];
    int last[2 * NUMBERS]; /* the last product that reads it */
    int products;
    product product[PRODUCTS];
    int16_t kept[EG_EINSUM_MAX];
    size_t block_bytes, bytes; /* bytes: of programs and strides */
    eg_planning draft;         /* the draft of the last product */
} planning;

/* Makes the header of node `number`. NULL after an error. */
static eg_tensor *pass_header(planning *p, int number, int rank, const uint16_t *label)
{
    char *memory = eg__alloc(p->y->cx, sizeof(eg_tensor) + 2 * (size_t)rank * sizeof(int64_t));
    if (!memory) return NULL;
    int64_t *dim = (int64_t *)(void *)(memory + sizeof(eg_tensor));
    eg_tensor *x = (eg_tensor *)(void *)memory;
    *x = (eg_tensor){
        .dtype = p->y->dtype, .rank = (uint8_t)rank, .dim = dim, .stride = dim + rank
    };
    eg__network_sizes(p->y, p->label, rank, label, dim);
    eg__row_major(rank, dim, x->stride);
    p->label[number] = label;
    return p->x[number] = x;
}
/* True if the product of a and b has these labels, each once: then it is the cotangent itself,
 * without broadcasting and without a diagonal. */
static bool pass_plain(const planning *p, int a, int b, int rank, const uint16_t *label)
{
    for (int k = 0; k < rank; k++)
        if (eg__label_at(label, k, label[k]) >= 0 ||
            (eg__label_at(p->label[a], p->x[a]->rank, label[k]) < 0 &&
             eg__label_at(p->label[b], p->x[b]->rank, label[k]) < 0))
            return false;
    return true;
}
/* Appends the product that computes a number. False if it is not plain (pass_plain), and after an
 * error. */
static bool pass_append(planning *p, int a, int b, int to, int rank, const uint16_t *label)
{
    eg_ctx *cx = p->y->cx;
    eg_tensor *const in[] = { p->x[a], p->x[b] };
    const uint16_t *const of[] = { p->label[a], p->label[b] };
    if (!pass_plain(p, a, b, rank, label)) return false;
    eg_tensor *x = pass_header(p, to, rank, label);
    if (!x || !eg__einsum_layout(2, in, of, rank, label, x->dim, x->stride)) return false;
    const eg_labelled out = { rank, x->dim, x->stride, label };
    if (!eg__einsum_drafted(cx, &p->draft, 2, in, of, &out, &eg__any_order)) return false;
    void *memory = eg__alloc(cx, eg__program_bytes(&p->draft.draft));
    if (!memory) return false;
    const int first = number_down(p->y->count, 0);
    product *q = &p->product[p->products];
    *q = (product){ .a = (int16_t)a,
                    .b = (int16_t)b,
                    .to = (int16_t)to,
                    .result = to >= first && to < first + p->y->count,
                    .bytes = eg__count(rank, x->dim) * eg__width[x->dtype],
                    .program = eg__program(memory, &p->draft.draft) };
    if (q->result) q->stride = x->stride;
    p->bytes += eg__up16(q->program->bytes) + (q->result ? (size_t)rank * sizeof *q->stride : 0);
    p->last[a] = p->last[b] = p->products++;
    return true;
}
/* Appends the products that compute the value of a number, unless it exists. False as
 * pass_append. */
static bool pass_value(planning *p, int number)
{
    const int s = number - p->y->count;
    if (p->x[number]) return true;
    const bool kept = p->kept[s] >= 0;
    const eg_tree *t = kept ? p->of_node : p->t;
    const int made = kept ? p->kept[s] : s, rank = t->step[made].rank;
    const uint16_t *label = eg__tree_labels(t, made);
    if (kept) return pass_header(p, number, rank, label) != NULL;
    const int a = t->step[s].a, b = t->step[s].b;
    return pass_value(p, a) && pass_value(p, b) && pass_append(p, a, b, number, rank, label);
}
/* Appends the products that propagate the cotangent of step s to the wanted operands: first the
 * cotangents of operands, then those of steps, so that few arrays are needed at a time. False as
 * pass_append. */
static bool pass_down(planning *p, int s)
{
    const int n = p->y->count, child[2] = { p->t->step[s].a, p->t->step[s].b };
    const int from = number_down(n, n + s);
    for (int inner = 0; inner < 2; inner++)
        for (int q = 0; q < 2; q++) {
            const int c = child[q] - n, to = number_down(n, child[q]);
            const uint64_t below = c < 0 ? (uint64_t)1 << child[q] : p->t->step[c].operands;
            if ((c >= 0) != inner || !(below & p->wanted)) continue;
            if (!pass_value(p, child[!q])) return false;
            const int rank = c < 0 ? p->y->in[child[q]]->rank : p->t->step[c].rank;
            const uint16_t *label =
                c < 0 ? eg__einsum_labels_of(p->y, child[q]) : eg__tree_labels(p->t, c);
            if (!pass_append(p, from, child[!q], to, rank, label)) return false;
            if (c >= 0 && !pass_down(p, c)) return false;
        }
    return true;
}
/* Gives each array the lowest offset that is free until its last use. */
static void pass_positions(planning *p)
{
    eg__byte_range taken[PRODUCTS];
    for (int k = 0; k < p->products; k++) {
        product *q = &p->product[k];
        const int64_t bytes = eg__round_up(q->bytes, EG_ALIGN);
        int alive = 0;
        if (q->result) continue;
        for (int j = 0; j < k; j++) {
            const product *z = &p->product[j];
            if (!z->result && p->last[z->to] >= k)
                taken[alive++] =
                    (eg__byte_range){ z->at, z->at + eg__round_up(z->bytes, EG_ALIGN) };
        }
        q->at = eg__gap(bytes, alive, taken);
        if ((size_t)(q->at + bytes) > p->block_bytes) p->block_bytes = (size_t)(q->at + bytes);
    }
}
static size_t pass_bytes(const planning *p)
{
    return sizeof(plan) + (size_t)p->products * sizeof *p->product +
           eg__up16((size_t)p->steps * sizeof *p->kept) + p->bytes;
}
/* Copies the plan to memory of that many bytes. The tree is not read: allocating the memory may
 * have evicted it. */
static const plan *pass_copied(void *memory, const planning *p)
{
    const size_t kept = (size_t)p->steps * sizeof *p->kept;
    plan *to = memory;
    char *next = (char *)(to->product + p->products);
    *to = (plan){ .products = p->products,
                  .block_bytes = p->block_bytes,
                  .kept = (int16_t *)(void *)next };
    memcpy(to->kept, p->kept, kept);
    next += eg__up16(kept);
    for (int k = 0; k < p->products; k++) {
        product *q = &to->product[k];
        *q = p->product[k];
        q->program = eg__program_copy(next, q->program);
        q->pairing = q->program->step[0].pairing;
        next += eg__up16(q->program->bytes);
    }
    for (int k = 0; k < p->products; k++) {
        product *q = &to->product[k];
        const size_t bytes = p->x[q->to]->rank * sizeof *q->stride;
        if (!q->result) continue;
        q->stride = memcpy(next, q->stride, bytes);
        next += bytes;
    }
    return to;
}
/* Plans a pass and stores it under its key. NULL after an error. */
static const plan *pass_planned(eg_tensor *y, const eg_network *w, eg_tensor *g, uint64_t wanted,
                                const eg_plan_key *key)
{
    eg_ctx *cx = y->cx;
    eg__arena *open = eg__top(cx);
    const eg_mark m = eg_push(cx);
    planning *p = m.scope ? eg__alloc(cx, sizeof *p) : NULL;
    const plan *made = NULL;
    if (p) {
        *p = (planning){ .y = y, .of_node = w->tree, .wanted = wanted, .steps = y->count - 1 };
        p->t = eg__network_tree(y, w, wanted);
    }
    if (p && p->t) {
        const int n = y->count, root = n - 2, last = number_down(n, n + root);
        for (int s = 0; s <= root; s++) p->kept[s] = (int16_t)eg__network_kept(w, p->t, s);
        for (int k = 0; k < n; k++) {
            p->x[k] = y->in[k];
            p->label[k] = eg__einsum_labels_of(y, k);
        }
        p->x[last] = g;
        p->label[last] = eg__einsum_labels_of(y, n);
        if (!pass_down(p, root)) p->products = 0, p->bytes = 0;
        pass_positions(p);
        void *memory = cx->failed ? NULL : eg__plans_add(cx, key, pass_bytes(p));
        if (!memory && !cx->failed) memory = eg__alloc_in(open, pass_bytes(p));
        if (memory) made = pass_copied(memory, p);
    }
    if (m.scope) eg_pop(cx, m);
    return made;
}

/* -- running ----------------------------------------------------------------------------------- */
/* Makes the tensors of the results, then runs the products. False after an error. */
static bool pass_run(const plan *p, eg_tensor *y, const eg_network *w, const eg_tensor *g,
                     eg_tensor **dx)
{
    eg_ctx *cx = y->cx;
    const int n = y->count, steps = n - 1, root = number_down(n, n + steps - 1);
    char *at[2 * NUMBERS];
    for (int k = 0; k < n; k++) at[k] = y->in[k]->data;
    for (int s = 0; s < steps; s++) at[n + s] = p->kept[s] < 0 ? NULL : w->kept[p->kept[s]];
    at[root] = g->data;
    for (int k = 0; k < p->products; k++) {
        const product *q = &p->product[k];
        const int i = q->to - number_down(n, 0);
        if (!q->result) continue;
        const eg_tensor *x = y->in[i];
        dx[i] = eg__new_unrecorded(cx, (eg_dtype)y->dtype, x->rank, x->dim, q->stride);
        if (!dx[i]) return false;
        at[q->to] = dx[i]->data;
    }
    const eg_mark m = p->block_bytes ? eg_push(cx) : (eg_mark){ NULL, 0 };
    char *memory = m.scope ? eg__alloc(cx, p->block_bytes) : NULL;
    bool good = memory || !p->block_bytes;
    const uint64_t begun = eg__fpmode_begin(cx->flush);
    for (int k = 0; good && k < p->products; k++) {
        const product *q = &p->product[k];
        if (!q->result) at[q->to] = memory + q->at;
        /* the einsum's factor enters with the cotangent of its result */
        const double alpha = q->a == root ? eg__einsum_alpha(y) : 1;
        good = eg__pair_run(cx, q->pairing, at[q->a], at[q->b], at[q->to], alpha, false, NULL);
    }
    eg__fpmode_end(begun);
    if (m.scope) eg_pop(cx, m);
    return good;
}
bool eg__network_at_once(eg_tensor *y, const eg_network *w, eg_tensor *g, uint64_t wanted,
                         eg_tensor **dx)
{
    eg_ctx *cx = y->cx;
    if (!w || !w->kept || cx->recording || cx->capture || g->copies || g->dtype != y->dtype ||
        cx->hooks.operand || cx->hooks.result)
        return false;
    const uint64_t of[] = { wanted, w->tree->number };
    const eg_plan_key key = { EG_KEY_PASS, 1, sizeof of, of, &g };
    const plan *p = eg__plans_find(cx, &key);
    if (!p) p = pass_planned(y, w, g, wanted, &key);
    return p && p->products && pass_run(p, y, w, g, dx);
}
