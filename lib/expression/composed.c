/* composed.c: the composed form of formulas, in which each node is an operation on tensors. It
 * defines the result, and computes derivatives of higher order and c128. */
#include "expression/expression.h"
#include <string.h>

/* -- cotangents of functions, which notation/expression_rows.h names -------------------------- */
/* Returns the cotangent of a in min(a, b) or max(a, b): g where wins(a, b) is true, g/2 where a and
 * b are equal, else 0. */
static eg_tensor *tie(eg_tensor *(*wins)(eg_tensor *, eg_tensor *), eg_tensor *a, eg_tensor *b,
                      eg_tensor *g)
{
    eg_tensor *zero = eg_full_n(g->cx, eg_type(g), 0, 0, NULL);
    return eg_where(eg_eq(a, b), eg_scale(g, .5), eg_where(wins(a, b), g, zero));
}

/* -- the value -------------------------------------------------------------------------------- */
/* Sets the sizes of node k as a tensor: those of the letters; 1 if the value does not depend on the
 * letter. */
static void node_sizes(const eg_composed *c, int k, int64_t *dim)
{
    for (int l = 0; l < c->letters; l++) dim[l] = c->e->node[k].letters >> l & 1 ? c->size[l] : 1;
}
/* Returns the values of node k, which are integers or bools. They have no derivative, so they are
 * computed by the loop, from the real parts of complex operands. Poison after an error. */
static eg_tensor *plain_values(eg_composed *c, int k)
{
    int64_t dim[EG_RANK_MAX];
    eg_tensor *x[EG_TENSORS_MAX];
    if (c->value[k]) return c->value[k];
    node_sizes(c, k, dim);
    for (int t = 0; t < c->count; t++)
        x[t] = eg_type(c->x[t]) == EG_C128 ? eg_real(c->x[t]) : c->x[t];
    for (int t = 0; t < c->count; t++)
        if (!eg_ok(x[t])) return x[t];
    const bool condition = c->e->node[k].kind == EG_IS_CONDITION;
    eg_tensor *y = eg__expression_values(c->cx,
                                         &(eg_expression_values){ .who = "expr",
                                                                  .e = c->e,
                                                                  .root = k,
                                                                  .letters = c->letters,
                                                                  .size = dim,
                                                                  .first = c->first,
                                                                  .x = x,
                                                                  .count = c->count,
                                                                  .f64 = c->floats != EG_F32 },
                                         condition ? EG_BOOL : EG_I64, c->letters, dim);
    return y ? (c->value[k] = y) : eg__poison(c->cx);
}
/* True if read k is a view of its tensor: the indices are different letters that begin at position
 * 0 and have the sizes of the axes. letter[r] is then the letter of axis r. */
static bool read_is_view(const eg_composed *c, int k, int *letter)
{
    const eg_node *n = &c->e->node[k];
    uint32_t seen = 0;
    for (int r = 0; r < n->count; r++) {
        const eg_node *i = &c->e->node[n->in[r]];
        if (i->code != EG_X_LETTER || seen >> i->in[0] & 1 ||
            c->x[n->tensor]->dim[r] != c->size[i->in[0]] || (c->first && c->first[i->in[0]]))
            return false;
        seen |= 1u << (letter[r] = i->in[0]);
    }
    return true;
}
/* Sets order[] to the n axes of a tensor, sorted by their letters. Returns n. */
static int order_of(int n, const int *letter, int *order)
{
    int m = 0;
    for (int l = 0; l < EG_EXPRESSION_LETTERS; l++)
        for (int r = 0; r < n; r++)
            if (letter[r] == l) order[m++] = r;
    return m;
}
/* Returns the row-major indices of the elements that read k takes from its tensor, in i64 with an
 * axis for each letter. */
static eg_tensor *read_positions(eg_composed *c, int k)
{
    const eg_node *n = &c->e->node[k];
    const eg_tensor *x = c->x[n->tensor];
    eg_tensor *sum = NULL;
    int64_t step = 1;
    for (int r = n->count; r-- > 0; step *= x->dim[r]) {
        eg_tensor *i = plain_values(c, n->in[r]);
        if (n->guard) i = eg_clip(i, 0, (double)(x->dim[r] - 1));
        i = eg_scale(i, (double)step);
        sum = sum ? eg_add(sum, i) : i;
    }
    return sum;
}
/* Returns the values of read k: a view of the tensor if possible, else a gather from the flattened
 * tensor. */
static eg_tensor *read_composed(eg_composed *c, int k)
{
    const eg_node *n = &c->e->node[k];
    eg_tensor *x = c->x[n->tensor];
    int64_t dim[EG_RANK_MAX], all = eg_size(x), count;
    int letter[EG_RANK_MAX], order[EG_RANK_MAX];
    node_sizes(c, k, dim);
    if (read_is_view(c, k, letter)) {
        order_of(n->count, letter, order);
        return eg_reshape_n(n->count ? eg_permute_n(x, n->count, order) : x, c->letters, dim);
    }
    if (!all) return eg_full_n(c->cx, eg_type(x), 0, c->letters, dim);
    eg_tensor *place = read_positions(c, k);
    if (!eg_ok(place)) return place;
    count = eg_size(place);
    eg_tensor *y = eg_at("[v], l -> l", eg_reshape_n(x, 1, &all), eg_reshape_n(place, 1, &count));
    return eg_reshape_n(y, c->letters, dim);
}
static eg_tensor *scalar_of(eg_composed *c, double value)
{
    return eg_full_n(c->cx, c->floats, value, 0, NULL);
}
/* min(max(a, low), high) with the slopes of operand_slope: at a limit that of a alone, where
 * minimum and maximum would share it. */
static eg_tensor *clip_composed(eg_tensor *a, eg_tensor *low, eg_tensor *high)
{
    eg_tensor *is_a = eg_and(eg_ge(a, low), eg_le(a, high)),
              *is_low = eg_and(eg_lt(a, low), eg_le(low, high));
    return eg_where(is_a, a, eg_where(is_low, low, eg_minimum(eg_maximum(a, low), high)));
}
/* Returns the value of float node k, computed from the tensors of its operands. */
static eg_tensor *node_composed(eg_composed *c, int k)
{
    const eg_node *n = &c->e->node[k];
    eg_tensor *a = n->count ? c->value[n->in[0]] : NULL,
              *b = n->count > 1 ? c->value[n->in[1]] : NULL,
              *last = n->count > 2 ? c->value[n->in[2]] : NULL, *x = a;
    switch (n->code) {
    case EG_X_FLOAT: return scalar_of(c, n->real);
    case EG_X_READ: return read_composed(c, k);
    case EG_X_TO_FLOAT: {
        eg_tensor *whole =
            eg_cast(plain_values(c, n->in[0]), c->floats == EG_F32 ? EG_F32 : EG_F64);
        return c->floats == EG_C128 ? eg_cast(whole, EG_C128) : whole;
    }
    case EG_X_SELECT: return eg_where(plain_values(c, n->in[0]), b, last);
    case EG_X_CLIP: return clip_composed(a, b, last);
#define VALUE_1(CODE, NAME, E, Y, D, COMPOSED, SLOPE) \
    case EG_X_##CODE:                                 \
        return COMPOSED;
#define VALUE_2(CODE, NAME, Y, DA, DB, COMPOSED, SLOPE_A, SLOPE_B) \
    case EG_X_##CODE: return COMPOSED;
        EG_FUNCTIONS_1(VALUE_1)
        EG_FUNCTIONS_2(VALUE_2)
#undef VALUE_1
#undef VALUE_2
    default: return eg_fail_as(c->cx, EG_ERROR_MISUSE, "expr: node %d is of no known kind", k);
    }
}
eg_tensor *eg__composed(eg_composed *c)
{
    bool used[EG_NODES_MAX] = { false };
    memset(c->value, 0, sizeof c->value);
    used[c->e->root] = true;
    for (int k = c->e->root; k >= 0; k--)
        for (int i = 0; used[k] && c->e->node[k].kind == EG_IS_FLOAT && i < c->e->node[k].count;
             i++)
            used[c->e->node[k].in[i]] = true;
    for (int k = 0; k <= c->e->root; k++) {
        if (!used[k]) continue;
        eg_tensor *y = c->e->node[k].kind == EG_IS_FLOAT ? node_composed(c, k)
                       : k == c->e->root                 ? plain_values(c, k)
                                                         : NULL;
        if (y && !eg_ok(y)) return y;
        if (y) c->value[k] = y;
    }
    return eg_expand_n(c->value[c->e->root], c->letters, c->size);
}

/* -- its cotangents ---------------------------------------------------------------------------- */
/* Returns t summed over the letters that node j does not depend on. */
static eg_tensor *summed_to(eg_composed *c, eg_tensor *t, int j)
{
    int64_t dim[EG_RANK_MAX];
    int order[EG_RANK_MAX], n = 0, inner = 0;
    node_sizes(c, j, dim);
    if (!eg_ok(t)) return t;
    for (int l = 0; l < c->letters; l++)
        if (t->dim[l] == dim[l]) order[n++] = l;
    for (int l = 0; l < c->letters; l++)
        if (t->dim[l] != dim[l]) order[n++] = l, inner++;
    if (!inner) return t;
    return eg_reshape_n(eg__sum_last(eg_permute_n(t, n, order), inner), c->letters, dim);
}
/* Returns the cotangent of operand i of node k, before it is summed, from the cotangent g of k. */
static eg_tensor *operand_slope(eg_composed *c, int k, int i, eg_tensor *g)
{
    const eg_node *n = &c->e->node[k];
    eg_tensor *y = c->value[k], *a = c->value[n->in[0]],
              *b = n->count > 1 ? c->value[n->in[1]] : NULL,
              *high = n->count > 2 ? c->value[n->in[2]] : NULL, *x = a, *zero = scalar_of(c, 0);
    (void)x, (void)y;
    switch (n->code) {
    case EG_X_SELECT:
        return i == 1 ? eg_where(plain_values(c, n->in[0]), g, zero)
                      : eg_where(plain_values(c, n->in[0]), zero, g);
    case EG_X_CLIP: {
        eg_tensor *is = i == 0   ? eg_and(eg_ge(a, b), eg_le(a, high))
                        : i == 1 ? eg_and(eg_lt(a, b), eg_le(b, high))
                                 : eg_gt(eg_maximum(a, b), high);
        return eg_where(is, g, zero);
    }
#define SLOPE_1(CODE, NAME, E, Y, D, COMPOSED, SLOPE) \
    case EG_X_##CODE:                                 \
        return SLOPE;
#define SLOPE_2(CODE, NAME, Y, DA, DB, COMPOSED, SLOPE_A, SLOPE_B) \
    case EG_X_##CODE: return i == 0 ? SLOPE_A : SLOPE_B;
        EG_FUNCTIONS_1(SLOPE_1)
        EG_FUNCTIONS_2(SLOPE_2)
#undef SLOPE_1
#undef SLOPE_2
    default: return NULL;
    }
}
/* Returns the cotangent of the tensor of read k from d, that of the values that were read. */
static eg_tensor *read_slope(eg_composed *c, int k, eg_tensor *d)
{
    const eg_node *n = &c->e->node[k];
    eg_tensor *x = c->x[n->tensor];
    int letter[EG_RANK_MAX], order[EG_RANK_MAX], back[EG_RANK_MAX];
    int64_t dim[EG_RANK_MAX], all = eg_size(x), count;
    if (read_is_view(c, k, letter)) {
        order_of(n->count, letter, order);
        for (int r = 0; r < n->count; r++) {
            dim[r] = x->dim[order[r]];
            back[order[r]] = r;
        }
        d = eg_reshape_n(d, n->count, dim);
        return n->count ? eg_permute_n(d, n->count, back) : d;
    }
    eg_tensor *zero = eg_full_n(c->cx, c->floats, 0, 1, &all);
    if (!all) return eg_reshape_n(zero, x->rank, x->dim);
    eg_tensor *place = read_positions(c, k);
    if (!eg_ok(place)) return place;
    int64_t full[EG_RANK_MAX];
    for (int l = 0; l < c->letters; l++) full[l] = place->dim[l];
    d = eg_expand_n(d, c->letters, full);
    count = eg_size(place);
    d = eg_scatter_add("[v], l, l", zero, eg_reshape_n(place, 1, &count),
                       eg_reshape_n(d, 1, &count));
    return eg_reshape_n(d, x->rank, x->dim);
}
bool eg__composed_slopes(eg_composed *c, eg_tensor *g, eg_tensor **dx)
{
    eg_tensor *slope[EG_NODES_MAX] = { NULL };
    bool moved[EG_NODES_MAX] = { false };
    for (int k = 0; k <= c->e->root; k++) {
        const eg_node *n = &c->e->node[k];
        moved[k] = n->kind == EG_IS_FLOAT && n->code == EG_X_READ;
        for (int i = 0; n->kind == EG_IS_FLOAT && n->code > EG_X_READ && i < n->count; i++)
            moved[k] |= n->code != EG_X_FLOOR && moved[n->in[i]];
    }
    for (int t = 0; t < c->count; t++) dx[t] = NULL;
    if (moved[c->e->root]) slope[c->e->root] = summed_to(c, g, c->e->root);
    for (int k = c->e->root; k >= 0; k--) {
        const eg_node *n = &c->e->node[k];
        if (!slope[k]) continue;
        if (!eg_ok(slope[k])) return false;
        if (n->code == EG_X_READ) {
            eg_tensor *d = read_slope(c, k, slope[k]), **to = &dx[n->tensor];
            *to = *to ? eg_add(*to, d) : d;
        }
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++) {
            const int j = n->in[i];
            if (!moved[j]) continue;
            eg_tensor *d = summed_to(c, operand_slope(c, k, i, slope[k]), j);
            slope[j] = slope[j] ? eg_add(slope[j], d) : d;
        }
    }
    for (int t = 0; t < c->count; t++)
        if (dx[t] ? !eg_ok(dx[t]) : false) return false;
    return !eg__failed(c->cx);
}
